// The echo of services/league/ws behind nginx, which proxies to it over a Unix socket. Usage: node server.mjs PORT
import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WebSocketServer } from "ws";

const folder = mkdtempSync(join(tmpdir(), "nginx-ws-"));
const program = join(import.meta.dirname, "../../../.tools/league/nginx-ws/root/usr/sbin/nginx");
const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on("connection", (socket) => {
  socket.on("error", console.error);
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});

http.listen(join(folder, "socket"), () => {
  // Started by root, nginx' workers give up their rights.
  chmodSync(folder, 0o755);
  chmodSync(join(folder, "socket"), 0o777);
  const text = readFileSync(join(import.meta.dirname, "nginx.conf"), "utf8");
  const filled = text.replaceAll("FOLDER", folder).replaceAll("PORT", process.argv[2]);
  writeFileSync(join(folder, "nginx.conf"), filled);
  const nginx = spawn(program, ["-p", folder, "-c", "nginx.conf", "-e", "stderr"], { stdio: "inherit" });
  const stop = (code) => {
    rmSync(folder, { recursive: true, force: true });
    process.exit(code ?? 1);
  };
  nginx.on("error", console.error).on("exit", stop);
  process.on("SIGTERM", () => nginx.kill("SIGTERM"));
});
