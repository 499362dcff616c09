// Sends back what it gets. Usage: node server.mjs PORT
import { WebSocketServer } from "ws";

const server = new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]), perMessageDeflate: false });
server.on("connection", (socket) => {
  socket.on("error", console.error);
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});
