// Sends back what it gets, compressed (RFC 7692). Usage: node echo-deflate.mjs PORT [serverNoContextTakeover | clientNoContextTakeover |
// serverMaxWindowBits=N | clientMaxWindowBits=N]...
import { WebSocketServer } from "ws";

const [port, ...settings] = process.argv.slice(2);
const perMessageDeflate = { threshold: 0 };
for (const setting of settings) {
  const [name, bits] = setting.split("=");
  perMessageDeflate[name] = bits === undefined || Number(bits);
}
const server = new WebSocketServer({ host: "127.0.0.1", port: Number(port), perMessageDeflate });
server.on("connection", (socket) => {
  socket.on("error", console.error);
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});
