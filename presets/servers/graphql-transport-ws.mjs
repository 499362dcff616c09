// A query that returns its argument, and a subscription that counts. Usage: node graphql-transport-ws.mjs PORT
import { GraphQLInt, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, GraphQLString } from "graphql";
import { useServer } from "graphql-ws/use/ws";
import { WebSocketServer } from "ws";

const echo = {
  type: GraphQLString,
  args: { m: { type: new GraphQLNonNull(GraphQLString) } },
  resolve: (_, { m }) => m,
};
const count = {
  type: GraphQLInt,
  args: { to: { type: new GraphQLNonNull(GraphQLInt) } },
  subscribe: async function* (_, { to }) {
    for (let n = 1; n <= to; n++) yield { count: n };
  },
};
const schema = new GraphQLSchema({
  query: new GraphQLObjectType({ name: "Query", fields: { echo } }),
  subscription: new GraphQLObjectType({ name: "Subscription", fields: { count } }),
});
useServer({ schema }, new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]), path: "/graphql" }));
