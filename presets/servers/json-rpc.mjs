// The method `echo` returns its parameters. Usage: node json-rpc.mjs PORT
import { JSONRPCServer } from "json-rpc-2.0";
import { WebSocketServer } from "ws";

const methods = new JSONRPCServer();
methods.addMethod("echo", (params) => params);
const server = new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]), perMessageDeflate: false });
server.on("connection", (socket) => {
  socket.on("error", console.error);
  socket.on("message", async (text) => socket.send(JSON.stringify(await methods.receive(JSON.parse(text)))));
});
