// Sends back what it gets. Usage: bun server.ts PORT
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.argv[2]),
  fetch(request, server) {
    if (server.upgrade(request)) return;
    return new Response("Upgrade failed", { status: 500 });
  },
  websocket: {
    perMessageDeflate: false,
    message(socket, message) {
      socket.send(message);
    },
  },
});
