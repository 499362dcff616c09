// Sends back what it gets. Usage: deno run --allow-net=127.0.0.1 server.ts PORT
Deno.serve({ hostname: "127.0.0.1", port: Number(Deno.args[0]) }, (request) => {
  if (request.headers.get("upgrade") !== "websocket") {
    return new Response(null, { status: 426 });
  }
  const { socket, response } = Deno.upgradeWebSocket(request);
  socket.addEventListener("message", (event) => socket.send(event.data));
  return response;
});
