// A query that returns its argument. Usage: node server.mjs PORT
import { GraphQLInt, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, GraphQLString } from "graphql";
import { useServer } from "graphql-ws/use/ws";
import { WebSocketServer } from "ws";

const echo = {
  type: GraphQLString,
  args: { m: { type: new GraphQLNonNull(GraphQLString) } },
  resolve: (_, { m }) => m,
};
const schema = new GraphQLSchema({ query: new GraphQLObjectType({ name: "Query", fields: { echo } }) });
const address = { host: "127.0.0.1", port: Number(process.argv[2]), path: "/graphql" };
useServer({ schema }, new WebSocketServer({ ...address, perMessageDeflate: false }));
