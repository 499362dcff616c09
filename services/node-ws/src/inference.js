/**
 * Requests to the inference, over HTTP/2 with prior knowledge (h2c) and a fixed number of shared connections.
 */

import http2 from 'node:http2';
import net from 'node:net';

import { parseRecognition, ResponseError } from './protocol.js';

const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH, HTTP2_HEADER_STATUS, NGHTTP2_CANCEL } = http2.constants;

/** Time limit for opening a connection, and for the reply to a PING, in milliseconds. */
const CONNECTION_TIMEOUT_MS = 1000;
/** Largest response body that is read. A regular one has a few hundred bytes. */
const MAX_RESPONSE_BYTES = 64 * 1024;
/** `maxSessionMemory` in MB. Node's 10 are reached by the batches of 300 sessions that flush at once. */
const MAX_SESSION_MEMORY_MB = 1024;

/**
 * The outcome of a request.
 *
 * @typedef {{recognition: import('./protocol.js').Recognition, failure?: undefined}
 *   | {failure: import('./protocol.js').Failure}} Outcome
 */

/** @typedef {import('./config.js').Config} Config */

export class Inference {
  #config;
  #connections;
  /** Number of requests so far; they take the connections in turn. */
  #next = 0;

  /** @param {Pick<Config, 'inference' | 'inferenceHttpClients' | 'inferenceTimeoutMs' | 'cpuPasses'>} config */
  constructor(config) {
    this.#config = config;
    this.#connections = Array.from({ length: config.inferenceHttpClients }, () => new Connection(config.inference));
  }

  /**
   * Sends a batch as one request.
   *
   * @param {Buffer} audio owned by the request until it has ended
   * @param {number} frames
   * @param {(outcome: Outcome) => void} onOutcome called once, asynchronously, unless the request is abandoned
   */
  recognise(audio, frames, onOutcome) {
    this.#next = (this.#next + 1) % this.#connections.length;
    const connection = /** @type {Connection} */ (this.#connections[this.#next]);
    return new Request(this.#config, connection, audio, frames, onOutcome);
  }

  /** Closes all connections, and with them the requests in flight. */
  close() {
    for (const connection of this.#connections) connection.close();
  }
}

/** One HTTP/2 connection, opened when it is needed and replaced when it is closed. */
class Connection {
  #address;
  /** @type {http2.ClientHttp2Session | undefined} */
  #session;
  #isPinging = false;

  /** @param {{host: string, port: number}} address */
  constructor(address) {
    this.#address = address;
  }

  session() {
    if (!this.#session || this.#session.closed || this.#session.destroyed) this.#session = this.#connect();
    return this.#session;
  }

  #connect() {
    const { host, port } = this.#address;
    const session = http2.connect(`http://${net.isIPv6(host) ? `[${host}]` : host}:${port}`, {
      createConnection: () => connect(this.#address),
      maxSessionMemory: MAX_SESSION_MEMORY_MB,
      settings: { enablePush: false },
    });
    // Each request gets the error through its own stream.
    session.on('error', () => {});
    return session;
  }

  /** Sends a PING after a request timed out, and closes the connection if there is no reply. */
  probe() {
    const session = this.#session;
    if (!session || session.connecting || session.destroyed || this.#isPinging) return;
    this.#isPinging = true;
    const timer = setTimeout(() => session.destroy(new Error('the connection answers nothing')), CONNECTION_TIMEOUT_MS);
    const settle = () => {
      clearTimeout(timer);
      this.#isPinging = false;
    };
    session.once('close', settle);
    session.ping(() => {
      session.off('close', settle);
      settle();
    });
  }

  close() {
    this.#session?.destroy();
  }
}

/** @type {(address: {host: string, port: number}) => net.Socket} */
function connect(address) {
  const socket = net.connect({ ...address, noDelay: true });
  const timer = setTimeout(
    () => socket.destroy(new Error(`not connected within ${CONNECTION_TIMEOUT_MS} ms`)),
    CONNECTION_TIMEOUT_MS,
  );
  socket.once('connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
  return socket;
}

/** The request for one batch. */
export class Request {
  #config;
  #connection;
  #audio;
  #frames;
  /** @type {((outcome: Outcome) => void) | undefined} */
  #onOutcome;
  #timer;
  /** @type {http2.ClientHttp2Stream | undefined} */
  #stream;
  /** Whether the request may be sent once more on a new connection if this one turns out to be closed. */
  #mayRetry = true;
  #status = 0;
  /** @type {Buffer[]} */
  #body = [];
  #bodyBytes = 0;
  /** @type {(Error & {code?: string}) | undefined} */
  #error;

  /**
   * @param {Pick<Config, 'inferenceTimeoutMs' | 'cpuPasses'>} config
   * @param {Connection} connection
   * @param {Buffer} audio
   * @param {number} frames
   * @param {(outcome: Outcome) => void} onOutcome
   */
  constructor(config, connection, audio, frames, onOutcome) {
    this.#config = config;
    this.#connection = connection;
    this.#audio = audio;
    this.#frames = frames;
    this.#onOutcome = onOutcome;
    this.#timer = setTimeout(() => this.#timeOut(), config.inferenceTimeoutMs);
    this.#send();
  }

  #send() {
    const session = this.#connection.session();
    // A connection that is opened for this request can't have been closed by the inference for being idle.
    if (session.connecting) this.#mayRetry = false;
    try {
      const stream = session.request(
        {
          [HTTP2_HEADER_METHOD]: 'POST',
          [HTTP2_HEADER_PATH]: '/infer',
          'content-type': 'application/octet-stream',
          'content-length': this.#audio.length,
          'x-cpu-passes': this.#config.cpuPasses,
        },
        { endStream: false },
      );
      this.#stream = stream;
      this.#setListeners(stream, session);
      stream.end(this.#audio);
    } catch (error) {
      this.#error = error instanceof Error ? error : new Error(String(error));
      setImmediate(() => this.#fail());
    }
  }

  /**
   * @param {http2.ClientHttp2Stream} stream
   * @param {http2.ClientHttp2Session} session
   */
  #setListeners(stream, session) {
    stream.on('response', (headers) => {
      this.#status = Number(headers[HTTP2_HEADER_STATUS]);
    });
    stream.on('data', (/** @type {Buffer} */ chunk) => {
      this.#bodyBytes += chunk.length;
      if (this.#bodyBytes <= MAX_RESPONSE_BYTES) this.#body.push(chunk);
    });
    stream.on('error', (error) => {
      this.#error = error;
    });
    stream.on('end', () => {
      if (this.#status > 0 && !stream.aborted && stream.rstCode === 0) this.#settle(this.#outcome());
    });
    stream.on('close', () => {
      if (!this.#onOutcome) return;
      const isClosed = session.destroyed || session.closed;
      if (isClosed && this.#mayRetry && this.#status === 0 && isConnectionFailure(this.#error)) {
        this.#mayRetry = false;
        this.#error = undefined;
        this.#send();
      } else {
        this.#fail();
      }
    });
  }

  /** Cancels the request; `onOutcome` is not called. */
  abandon() {
    this.#release();
    this.#stream?.close(NGHTTP2_CANCEL);
  }

  /** Whether all audio is sent, so that its memory may be reused. */
  get isSent() {
    return this.#stream?.writableFinished === true;
  }

  #timeOut() {
    this.#connection.probe();
    const message = `no answer within ${this.#config.inferenceTimeoutMs} ms`;
    this.#settle({ failure: { kind: 'timeout', status: null, message } });
  }

  #fail() {
    const error = this.#error;
    const [kind, message] = isHttp2Violation(error)
      ? [/** @type {const} */ ('parse_error'), "the inference doesn't speak HTTP/2"]
      : [/** @type {const} */ ('connection_reset'), 'the connection to the inference failed'];
    const failure = { kind, status: null, message: error ? `${message}: ${error.message}` : message };
    this.#settle({ failure });
  }

  /** @param {Outcome} outcome */
  #settle(outcome) {
    const onOutcome = this.#onOutcome;
    this.#release();
    // The response arrived before all audio was sent, or there is no response.
    if (this.#stream && !this.#stream.writableFinished) this.#stream.close(NGHTTP2_CANCEL);
    onOutcome?.(outcome);
  }

  #release() {
    this.#onOutcome = undefined;
    clearTimeout(this.#timer);
  }

  /** @returns {Outcome} */
  #outcome() {
    const status = this.#status;
    if (status < 200 || status > 299) {
      const kind = status === 429 ? 'http_429' : 'http_5xx';
      return { failure: { kind, status, message: `the inference answered ${status}` } };
    }
    try {
      if (this.#bodyBytes > MAX_RESPONSE_BYTES) {
        throw new ResponseError(`the inference's answer is longer than ${MAX_RESPONSE_BYTES} bytes`);
      }
      const body = this.#body.length === 1 ? this.#body[0] : undefined;
      const recognition = parseRecognition(body ?? Buffer.concat(this.#body), this.#frames, this.#config.cpuPasses);
      return { recognition };
    } catch (error) {
      if (!(error instanceof ResponseError)) throw error;
      return { failure: { kind: 'parse_error', status, message: error.message } };
    }
  }
}

/**
 * Whether the peer violated HTTP/2. All other errors are failures of the connection.
 *
 * @param {(Error & {code?: string}) | undefined} error
 */
function isHttp2Violation(error) {
  return error?.code === 'ERR_HTTP2_ERROR';
}

/**
 * Whether the connection was closed by the peer or the network, not by this gateway.
 *
 * @param {(Error & {code?: string}) | undefined} error
 */
function isConnectionFailure(error) {
  return !error || (error.code !== undefined && !isHttp2Violation(error));
}
