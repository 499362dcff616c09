// An MQTT broker. Usage: node mqtt-3.1.1.mjs PORT
import { Aedes } from "aedes";
import { createWebSocketStream, WebSocketServer } from "ws";

const broker = await Aedes.createBroker();
const server = new WebSocketServer({
  host: "127.0.0.1",
  port: Number(process.argv[2]),
  perMessageDeflate: false,
  handleProtocols: () => "mqtt",
});
server.on("connection", (socket, request) => {
  broker.handle(createWebSocketStream(socket).on("error", console.error), request);
});
