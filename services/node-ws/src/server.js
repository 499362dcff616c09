/** The port of the clients: accepts, answers HTTP, upgrades, and brings everything to an end. */

import http from 'node:http';

import { WebSocketServer } from 'ws';

import { BatchPool } from './backlog.js';
import { AT, add, Books } from './books.js';
import { Clock } from './clock.js';
import { Inference } from './inference.js';
import { NAME } from './metrics.js';
import { FRAME_MS, MAX_MESSAGE_BYTES } from './protocol.js';
import { Session } from './session.js';

/** Handshakes that may wait for us: clients come by the thousand. */
const BACKLOG = 8192;
/** Longest time for the head of a request, in milliseconds. */
const HEAD_TIMEOUT_MS = 10_000;
/** How long a client may take to answer a close frame, in milliseconds. */
const FAREWELL_MS = 1000;
/** How long sessions may take to end by themselves when the gateway stops, without the farewell, in milliseconds. */
const DRAIN_MS = 2700;
/**
 * Bytes that a paused socket reads ahead: the least. More would make a paused socket wake the process for each frame until
 * so many have come.
 */
const READ_AHEAD_BYTES = 1;

const WEB_SOCKETS = {
  noServer: true,
  clientTracking: false,
  perMessageDeflate: false,
  maxPayload: MAX_MESSAGE_BYTES,
  // A client may ping as often as it likes, as long as it reads the pongs.
  maxPendingAutoPongs: 0,
  // A start that is no UTF-8 is refused as any other that is none.
  skipUTF8Validation: true,
  closeTimeout: FAREWELL_MS,
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
        headersTimeout: HEAD_TIMEOUT_MS,
        highWaterMark: READ_AHEAD_BYTES,
        keepAlive: true,
        noDelay: true,
        requestTimeout: HEAD_TIMEOUT_MS,
      },
      (request, response) => answer(request, response),
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
    const full = this.#isFull();
    if (full) {
      this.#reject(full);
      refuse(socket, { status: 503, message: full });
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
    this.books.enter((counts) => add(counts, AT.rejected[reason]));
  }

  /** Takes no more connections, and returns when all sessions have ended. */
  async drain() {
    this.books.enter((counts) => {
      counts[AT.accepting] = 0;
    });
    this.#http.close();
    for (const session of this.#sessions.values()) session.drain();
    if (!(await this.#isEmptyWithin(DRAIN_MS))) {
      for (const session of this.#sessions.values()) session.shutDown();
      if (!(await this.#isEmptyWithin(FAREWELL_MS))) {
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
      const look = () => {
        if (this.#sessions.size === 0) resolve(true);
        else if (performance.now() >= deadline) resolve(false);
        else setTimeout(look, 5);
      };
      look();
    });
  }
}

/**
 * What is wrong with a handshake, if anything is. The key is the library's to check.
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
 * What is wrong with a request's path or method, if anything is.
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
 * Answers a request that is no upgrade.
 *
 * @param {http.IncomingMessage} request
 * @param {http.ServerResponse} response
 */
function answer(request, response) {
  const refusal = route(request) ?? (request.url?.startsWith('/ws/stt') ? upgradeRequired() : undefined);
  if (refusal) response.writeHead(refusal.status, refusal.headers).end(`${refusal.message}\n`);
  else response.writeHead(200, { 'content-type': 'application/json' }).end(HEALTH);
}

/**
 * Answers a handshake that is refused.
 *
 * @param {Duplex} socket
 * @param {Refusal} refusal
 */
function refuse(socket, { status, message, headers = {} }) {
  // A client that is gone has nothing to hear.
  socket.on('error', () => socket.destroy());
  const head = Object.entries({ ...headers, connection: 'close', 'content-length': message.length });
  const lines = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}`,
    ...head.map(([name, value]) => `${name}: ${value}`),
  ];
  socket.once('finish', () => socket.destroy());
  socket.end(`${lines.join('\r\n')}\r\n\r\n${message}`);
}
