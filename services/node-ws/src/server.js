/** The client port: accepts connections, answers HTTP requests, upgrades, and shuts down gracefully. */

import http from 'node:http';

import { WebSocketServer } from 'ws';

import { BatchPool } from './backlog.js';
import { AT, add, Books } from './books.js';
import { Clock } from './clock.js';
import { Inference } from './inference.js';
import { NAME } from './metrics.js';
import { FRAME_MS, MAX_MESSAGE_BYTES } from './protocol.js';
import { Session } from './session.js';

/** Listen backlog. Thousands of clients may connect at once. */
const BACKLOG = 8192;
/** Time limit for receiving the head of a request, in milliseconds. */
const HEADERS_TIMEOUT_MS = 10_000;
/** Time limit for a client's reply to a Close frame, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1000;
/** Time limit for the sessions' last batches when the gateway stops, without the close handshake, in milliseconds. */
const DRAIN_MS = 2700;
/**
 * Bytes that a paused socket reads ahead, the minimum. With a larger value, a paused socket would wake the process
 * for each frame until this number of bytes has arrived.
 */
const READ_AHEAD_BYTES = 1;

const WEB_SOCKETS = {
  noServer: true,
  clientTracking: false,
  perMessageDeflate: false,
  maxPayload: MAX_MESSAGE_BYTES,
  // The number of pings is not limited, as long as the client reads the pongs.
  maxPendingAutoPongs: 0,
  // The session refuses a first message that is not UTF-8 like every other invalid one.
  skipUTF8Validation: true,
  closeTimeout: CLOSE_TIMEOUT_MS,
  /** @returns {false} */
  handleProtocols: () => false,
};

const HEALTH = JSON.stringify({ ok: true, runtime: NAME });

/** @typedef {import('node:stream').Duplex} Duplex */
/** @typedef {{status: number, message: string, headers?: Record<string, string>}} Refusal */

export class Server {
  books = new Books();
  #gateway;
  #http;
  #webSockets = new WebSocketServer(WEB_SOCKETS);
  /** @type {Map<import('ws').WebSocket, Session>} */
  #sessions = new Map();

  /** @param {import('./config.js').Config} config */
  constructor(config) {
    const batchFrames = Math.ceil((config.flushIntervalMs / FRAME_MS) * 1.2);
    this.#gateway = {
      config,
      books: this.books,
      clock: new Clock(),
      inference: new Inference(config),
      pool: new BatchPool(Math.min(batchFrames, config.maxBufferedFrames)),
    };
    this.#http = http.createServer(
      {
        connectionsCheckingInterval: 1000,
        headersTimeout: HEADERS_TIMEOUT_MS,
        highWaterMark: READ_AHEAD_BYTES,
        keepAlive: true,
        noDelay: true,
        requestTimeout: HEADERS_TIMEOUT_MS,
      },
      (request, response) => respond(request, response),
    );
    this.#http.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
    this.#webSockets.on('wsClientError', (error, socket) => {
      this.#reject('handshake');
      refuse(socket, { status: 400, message: error.message });
    });
  }

  /** @returns {Promise<import('node:net').AddressInfo>} */
  listen() {
    const { host, port } = this.#gateway.config;
    return new Promise((resolve, reject) => {
      this.#http.once('error', reject);
      this.#http.listen({ host, port, backlog: BACKLOG }, () => {
        resolve(/** @type {import('node:net').AddressInfo} */ (this.#http.address()));
      });
    });
  }

  /**
   * @param {http.IncomingMessage} request
   * @param {Duplex} socket
   * @param {Buffer} head
   */
  #upgrade(request, socket, head) {
    const refusal = check(request);
    if (refusal) {
      if (refusal.status === 426) this.#reject('handshake');
      refuse(socket, refusal);
      return;
    }
    const refusalReason = this.#isFull();
    if (refusalReason) {
      this.#reject(refusalReason);
      refuse(socket, { status: 503, message: refusalReason });
      return;
    }
    this.#webSockets.handleUpgrade(request, socket, head, (ws) => {
      const session = new Session(this.#gateway, ws, request.socket, head.length);
      this.#sessions.set(ws, session);
      ws.on('close', () => this.#sessions.delete(ws));
    });
  }

  #isFull() {
    if (!this.books.get(AT.accepting)) return 'draining';
    const { maxConnections } = this.#gateway.config;
    return maxConnections > 0 && this.books.get(AT.open) >= maxConnections ? 'full' : undefined;
  }

  /** @param {import('./books.js').RejectReason} reason */
  #reject(reason) {
    this.books.update((counts) => add(counts, AT.rejected[reason]));
  }

  /** Refuses new connections and drains the sessions. Resolves when all have ended. */
  async drain() {
    this.books.update((counts) => {
      counts[AT.accepting] = 0;
    });
    this.#http.close();
    for (const session of this.#sessions.values()) session.drain();
    if (!(await this.#isEmptyWithin(DRAIN_MS))) {
      for (const session of this.#sessions.values()) session.shutDown();
      if (!(await this.#isEmptyWithin(CLOSE_TIMEOUT_MS))) {
        console.error(`${this.#sessions.size} sessions did not end in time`);
      }
    }
    for (const ws of this.#sessions.keys()) ws.terminate();
    this.#http.closeAllConnections();
    this.#gateway.inference.close();
  }

  /** @param {number} milliseconds */
  #isEmptyWithin(milliseconds) {
    const deadline = performance.now() + milliseconds;
    return new Promise((resolve) => {
      const poll = () => {
        if (this.#sessions.size === 0) resolve(true);
        else if (performance.now() >= deadline) resolve(false);
        else setTimeout(poll, 5);
      };
      poll();
    });
  }
}

/**
 * Validates a handshake. Returns a refusal, or `undefined` if it is valid. The library checks the key.
 *
 * @param {http.IncomingMessage} request
 * @returns {Refusal | undefined}
 */
function check(request) {
  const refusal = route(request);
  if (refusal) return refusal;
  const isWebSocket = request.headers.upgrade?.toLowerCase() === 'websocket';
  if (isWebSocket && request.headers['sec-websocket-version'] === '13') return undefined;
  return upgradeRequired();
}

/**
 * Validates a request's path and method. Returns a refusal, or `undefined` if they are valid.
 *
 * @param {http.IncomingMessage} request
 * @returns {Refusal | undefined}
 */
function route(request) {
  const path = request.url?.split('?')[0];
  if (path !== '/ws/stt' && path !== '/health') return { status: 404, message: 'not found' };
  if (request.method !== 'GET') return { status: 405, message: 'only GET', headers: { allow: 'GET' } };
  return undefined;
}

/** @returns {Refusal} */
function upgradeRequired() {
  const headers = { upgrade: 'websocket', 'sec-websocket-version': '13' };
  return { status: 426, message: 'this is a WebSocket of version 13', headers };
}

/**
 * Responds to a request that is not an upgrade.
 *
 * @param {http.IncomingMessage} request
 * @param {http.ServerResponse} response
 */
function respond(request, response) {
  const refusal = route(request) ?? (request.url?.startsWith('/ws/stt') ? upgradeRequired() : undefined);
  if (refusal) response.writeHead(refusal.status, refusal.headers).end(`${refusal.message}\n`);
  else response.writeHead(200, { 'content-type': 'application/json' }).end(HEALTH);
}

/**
 * Responds to a handshake that is refused.
 *
 * @param {Duplex} socket
 * @param {Refusal} refusal
 */
function refuse(socket, { status, message, headers = {} }) {
  // An error means that the client has disconnected.
  socket.on('error', () => socket.destroy());
  const head = Object.entries({ ...headers, connection: 'close', 'content-length': message.length });
  const lines = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}`,
    ...head.map(([name, value]) => `${name}: ${value}`),
  ];
  socket.once('finish', () => socket.destroy());
  socket.end(`${lines.join('\r\n')}\r\n\r\n${message}`);
}
