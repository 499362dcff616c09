// A chat: acknowledges messages, and sends news to the members of a room. Usage: node server.mjs PORT
import { createServer } from "node:http";
import { Server } from "socket.io";

const http = createServer();
const io = new Server(http);
io.on("connection", (socket) => {
  socket.on("message", (data, acknowledge) => acknowledge(data));
  socket.on("join", (room, acknowledge) => {
    socket.join(room);
    acknowledge("ok");
  });
  socket.on("publish", (room, news) => io.to(room).emit("news", news));
});
http.listen(Number(process.argv[2]), "127.0.0.1");
