/**
 * Requests to the inference: HTTP/2 with prior knowledge (h2c), over a fixed number of connections that sessions share.
 */

import http2 from 'node:http2';
import net from 'node:net';

import { AnswerError, parseRecognition } from './protocol.js';

const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH, HTTP2_HEADER_STATUS, NGHTTP2_CANCEL } = http2.constants;

/** Longest time for a connection to open, and for one that was asked whether it lives to say so, in milliseconds. */
const PATIENCE_MS = 1000;
/** An answer is some hundred bytes; what is longer is none. */
const MAX_ANSWER_BYTES = 64 * 1024;
/** What one connection may hold, in MB. Node's 10 are the batches of 300 sessions that flush at once. */
const MAX_SESSION_MEMORY_MB = 1024;

/**
 * How a request ended.
 *
 * @typedef {{recognition: import('./protocol.js').Recognition, failure?: undefined}
 *   | {failure: import('./protocol.js').Failure}} Outcome
 */

/** @typedef {import('./config.js').Config} Config */

export class Inference {
  #config;
  #connections;
  /** Requests so far: they take the connections in turn. */
  #turn = 0;

  /** @param {Pick<Config, 'inference' | 'inferenceHttpClients' | 'inferenceTimeoutMs' | 'cpuPasses'>} config */
  constructor(config) {
    this.#config = config;
    this.#connections = Array.from({ length: config.inferenceHttpClients }, () => new Connection(config.inference));
  }

  /**
   * Has a batch recognised.
   *
   * @param {Buffer} audio belongs to the request until it has ended
   * @param {number} frames
   * @param {(outcome: Outcome) => void} done called once, later, unless the request is abandoned
   */
  recognise(audio, frames, done) {
    this.#turn = (this.#turn + 1) % this.#connections.length;
    const connection = /** @type {Connection} */ (this.#connections[this.#turn]);
    return new Request(this.#config, connection, audio, frames, done);
  }

  /** Ends all connections, and with them what is in flight. */
  close() {
    for (const connection of this.#connections) connection.close();
  }
}

/** One HTTP/2 connection, opened when it is needed and replaced when it is gone. */
class Connection {
  #address;
  /** @type {http2.ClientHttp2Session | undefined} */
  #session;
  #isProbed = false;

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
    // Each request hears of it by itself.
    session.on('error', () => {});
    return session;
  }

  /** A request was not answered in time: gives the connection up if it doesn't answer anything. */
  probe() {
    const session = this.#session;
    if (!session || session.connecting || session.destroyed || this.#isProbed) return;
    this.#isProbed = true;
    const timer = setTimeout(() => session.destroy(new Error('the connection answers nothing')), PATIENCE_MS);
    const settle = () => {
      clearTimeout(timer);
      this.#isProbed = false;
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
  const timer = setTimeout(() => socket.destroy(new Error(`not connected within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  socket.once('connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
  return socket;
}

/** One batch on its way. */
export class Request {
  #config;
  #connection;
  #audio;
  #frames;
  /** @type {((outcome: Outcome) => void) | undefined} */
  #done;
  #timer;
  /** @type {http2.ClientHttp2Stream | undefined} */
  #stream;
  /** Whether the connection may be replaced if it turns out to be closed. */
  #mayReplace = true;
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
   * @param {(outcome: Outcome) => void} done
   */
  constructor(config, connection, audio, frames, done) {
    this.#config = config;
    this.#connection = connection;
    this.#audio = audio;
    this.#frames = frames;
    this.#done = done;
    this.#timer = setTimeout(() => this.#timeOut(), config.inferenceTimeoutMs);
    this.#send();
  }

  #send() {
    const session = this.#connection.session();
    // What is opened for this request can't have been closed by an inference that was tired of waiting.
    if (session.connecting) this.#mayReplace = false;
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
      this.#listen(stream, session);
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
  #listen(stream, session) {
    stream.on('response', (headers) => {
      this.#status = Number(headers[HTTP2_HEADER_STATUS]);
    });
    stream.on('data', (/** @type {Buffer} */ chunk) => {
      this.#bodyBytes += chunk.length;
      if (this.#bodyBytes <= MAX_ANSWER_BYTES) this.#body.push(chunk);
    });
    stream.on('error', (error) => {
      this.#error = error;
    });
    stream.on('end', () => {
      if (this.#status > 0 && !stream.aborted && stream.rstCode === 0) this.#settle(this.#answer());
    });
    stream.on('close', () => {
      if (!this.#done) return;
      const isClosed = session.destroyed || session.closed;
      if (isClosed && this.#mayReplace && this.#status === 0 && isGone(this.#error)) {
        this.#mayReplace = false;
        this.#error = undefined;
        this.#send();
      } else {
        this.#fail();
      }
    });
  }

  /** Nobody wants the answer any more. */
  abandon() {
    this.#release();
    this.#stream?.close(NGHTTP2_CANCEL);
  }

  /** Whether all of the audio has left: its memory may be used again. */
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
    const [kind, message] = isForeign(error)
      ? [/** @type {const} */ ('parse_error'), "the inference doesn't speak HTTP/2"]
      : [/** @type {const} */ ('connection_reset'), 'the connection to the inference failed'];
    const failure = { kind, status: null, message: error ? `${message}: ${error.message}` : message };
    this.#settle({ failure });
  }

  /** @param {Outcome} outcome */
  #settle(outcome) {
    const done = this.#done;
    this.#release();
    // An answer that came before all of the audio had left, or none.
    if (this.#stream && !this.#stream.writableFinished) this.#stream.close(NGHTTP2_CANCEL);
    done?.(outcome);
  }

  #release() {
    this.#done = undefined;
    clearTimeout(this.#timer);
  }

  /** @returns {Outcome} */
  #answer() {
    const status = this.#status;
    if (status < 200 || status > 299) {
      const kind = status === 429 ? 'http_429' : 'http_5xx';
      return { failure: { kind, status, message: `the inference answered ${status}` } };
    }
    try {
      if (this.#bodyBytes > MAX_ANSWER_BYTES) {
        throw new AnswerError(`the inference's answer is longer than ${MAX_ANSWER_BYTES} bytes`);
      }
      const body = this.#body.length === 1 ? this.#body[0] : undefined;
      const recognition = parseRecognition(body ?? Buffer.concat(this.#body), this.#frames, this.#config.cpuPasses);
      return { recognition };
    } catch (error) {
      if (!(error instanceof AnswerError)) throw error;
      return { failure: { kind: 'parse_error', status, message: error.message } };
    }
  }
}

/**
 * Whether the peer broke the rules of HTTP/2, and is no inference. All else is a matter of the connection.
 *
 * @param {(Error & {code?: string}) | undefined} error
 */
function isForeign(error) {
  return error?.code === 'ERR_HTTP2_ERROR';
}

/**
 * Whether the connection was closed by the peer or on the way, and not given up by us.
 *
 * @param {(Error & {code?: string}) | undefined} error
 */
function isGone(error) {
  return !error || (error.code !== undefined && !isForeign(error));
}
