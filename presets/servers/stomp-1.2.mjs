// A STOMP broker. Usage: node stomp-1.2.mjs PORT
import { createServer } from "node:http";
import StompServer from "stomp-broker-js";

const http = createServer();
new StompServer({ server: http, path: "/ws", protocol: "ws" });
http.listen(Number(process.argv[2]), "127.0.0.1");
