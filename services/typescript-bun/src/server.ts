/** The client port: accepts connections, answers HTTP requests, upgrades, and shuts down gracefully. */

import { BatchPool } from './backlog.ts';
import { AT, add, Books, type RejectReason } from './books.ts';
import { Clock } from './clock.ts';
import type { Config } from './config.ts';
import { Inference } from './inference.ts';
import { NAME } from './metrics.ts';
import { FRAME_MS, MAX_MESSAGE_BYTES } from './protocol.ts';
import { type Gateway, Session, type Socket } from './session.ts';

/** Time limit for the sessions' last batches when the gateway stops, in milliseconds. */
const DRAIN_MS = 2700;
/** Time limit for the close handshakes after that, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1100;

export class Server {
  readonly books = new Books();
  readonly #gateway: Gateway;
  readonly #sockets = new Set<Socket>();
  #bun: Bun.Server<Session> | undefined;

  constructor(config: Config) {
    const batchFrames = Math.ceil((config.flushIntervalMs / FRAME_MS) * 1.2);
    this.#gateway = {
      config,
      books: this.books,
      clock: new Clock(),
      inference: new Inference(config),
      pool: new BatchPool(Math.min(batchFrames, config.maxBufferedFrames)),
    };
  }

  /** Starts to accept connections. Returns the bound port. */
  listen(reusePort: boolean): number {
    const { host, port } = this.#gateway.config;
    this.#bun = Bun.serve<Session>({
      hostname: host,
      port,
      reusePort,
      idleTimeout: 10,
      fetch: (request, server) => this.#fetch(request, server),
      websocket: {
        idleTimeout: 0,
        sendPings: false,
        perMessageDeflate: false,
        maxPayloadLength: MAX_MESSAGE_BYTES,
        open: (socket) => {
          this.#sockets.add(socket);
          socket.data.open(socket);
        },
        message: (socket, message) => socket.data.message(message),
        ping: (socket, payload) => socket.data.ping(payload),
        close: (socket, code) => {
          this.#sockets.delete(socket);
          socket.data.closed(code);
        },
      },
    });
    return this.#bun.port ?? 0;
  }

  #fetch(request: Request, server: Bun.Server<Session>): Response | undefined {
    const { pathname } = new URL(request.url);
    if (pathname !== '/ws/stt' && pathname !== '/health') return new Response('not found\n', { status: 404 });
    if (request.method !== 'GET') return new Response('only GET\n', { status: 405, headers: { allow: 'GET' } });
    if (pathname === '/health') return Response.json({ ok: true, runtime: NAME });
    return this.#upgrade(request, server);
  }

  #upgrade(request: Request, server: Bun.Server<Session>): Response | undefined {
    const { headers } = request;
    const isWebSocket = headers.get('upgrade')?.toLowerCase() === 'websocket';
    if (!isWebSocket || headers.get('sec-websocket-version') !== '13') {
      const expectedHeaders = { upgrade: 'websocket', 'sec-websocket-version': '13' };
      return this.#reject('handshake', 'this is a WebSocket of version 13', { status: 426, headers: expectedHeaders });
    }
    const refusalReason = this.#isFull();
    if (refusalReason) return this.#reject(refusalReason, refusalReason, { status: 503 });
    if (server.upgrade(request, { data: new Session(this.#gateway) })) return undefined;
    return this.#reject('handshake', 'this is not a handshake', { status: 400 });
  }

  #isFull(): 'draining' | 'full' | undefined {
    if (!this.books.get(AT.accepting)) return 'draining';
    const { maxConnections } = this.#gateway.config;
    return maxConnections > 0 && this.books.get(AT.open) >= maxConnections ? 'full' : undefined;
  }

  #reject(reason: RejectReason, message: string, init: ResponseInit): Response {
    this.books.update((counts) => add(counts, AT.rejected[reason]));
    return new Response(`${message}\n`, init);
  }

  /** Refuses new connections and drains the sessions. Resolves when all have ended. */
  async drain(): Promise<void> {
    this.books.update((counts) => {
      counts[AT.accepting] = 0;
    });
    // The promise of `stop` is ignored, because it waits for all connections, including idle ones.
    void this.#bun?.stop();
    for (const socket of this.#sockets) socket.data.drain();
    if (!(await this.#isEmptyWithin(DRAIN_MS))) {
      for (const socket of this.#sockets) socket.data.shutDown();
      if (!(await this.#isEmptyWithin(CLOSE_TIMEOUT_MS)))
        console.error(`${this.#sockets.size} sessions did not end in time`);
    }
    this.#gateway.inference.close();
  }

  async #isEmptyWithin(milliseconds: number): Promise<boolean> {
    const deadline = performance.now() + milliseconds;
    while (this.#sockets.size > 0) {
      if (performance.now() >= deadline) return false;
      await Bun.sleep(5);
    }
    return true;
  }
}
