/** Requests to the inference, over HTTP/2 with prior knowledge (h2c) and a fixed number of shared connections. */

import http2 from 'node:http2';
import net from 'node:net';

import type { Config } from './config.ts';
import { parseRecognition, type Recognition, type RequestFailure, ResponseError } from './protocol.ts';

/** Time limit for opening a connection, and for the reply to a PING, in milliseconds. */
const CONNECTION_TIMEOUT_MS = 1000;
/** Largest response body that is read. A regular one has a few hundred bytes. */
const MAX_RESPONSE_BYTES = 64 * 1024;
/** `maxSessionMemory` in MB. The default of 10 is reached by the batches of 300 sessions that flush at once. */
const MAX_SESSION_MEMORY_MB = 1024;

/** The outcome of a request. */
export type Outcome = { recognition: Recognition; failure?: undefined } | { failure: RequestFailure };

type Settings = Pick<Config, 'inference' | 'inferenceHttpClients' | 'inferenceTimeoutMs' | 'cpuPasses'>;

export class Inference {
  readonly #config: Settings;
  readonly #connections: Connection[];
  /** Number of requests so far; they take the connections in turn. */
  #next = 0;

  constructor(config: Settings) {
    this.#config = config;
    this.#connections = Array.from({ length: config.inferenceHttpClients }, () => new Connection(config.inference));
  }

  /** Sends a batch. `onOutcome` is called once, asynchronously, unless the request is abandoned. */
  recognise(audio: Buffer, frames: number, onOutcome: (outcome: Outcome) => void): InferenceRequest {
    this.#next = (this.#next + 1) % this.#connections.length;
    return new InferenceRequest(this.#config, this.#connections[this.#next] as Connection, audio, frames, onOutcome);
  }

  /** Closes all connections, and with them the requests in flight. */
  close(): void {
    for (const connection of this.#connections) connection.close();
  }
}

/** One HTTP/2 connection, opened when it is needed and replaced when it is closed. */
class Connection {
  readonly #address: { host: string; port: number };
  #session: http2.ClientHttp2Session | undefined;
  #isPinging = false;

  constructor(address: { host: string; port: number }) {
    this.#address = address;
  }

  session(): http2.ClientHttp2Session {
    if (!this.#session || this.#session.closed || this.#session.destroyed) this.#session = this.#connect();
    return this.#session;
  }

  #connect(): http2.ClientHttp2Session {
    const { host, port } = this.#address;
    const session = http2.connect(`http://${net.isIPv6(host) ? `[${host}]` : host}:${port}`, {
      maxSessionMemory: MAX_SESSION_MEMORY_MB,
      settings: { enablePush: false },
    });
    const timer = setTimeout(() => session.destroy(), CONNECTION_TIMEOUT_MS);
    session.once('connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
    // Each request gets the error through its own stream.
    session.on('error', () => {});
    return session;
  }

  /** Sends a PING after a request timed out, and closes the connection if there is no reply. */
  probe(): void {
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

  close(): void {
    this.#session?.destroy();
  }
}

/** The request for one batch. */
export class InferenceRequest {
  readonly #config: Settings;
  readonly #connection: Connection;
  readonly #audio: Buffer;
  readonly #frames: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  #onOutcome: ((outcome: Outcome) => void) | undefined;
  #stream: http2.ClientHttp2Stream | undefined;
  /** Whether the request may be sent once more on a new connection if this one turns out to be closed. */
  #mayRetry = true;
  #status = 0;
  readonly #body: Buffer[] = [];
  #bodyBytes = 0;
  #error: (Error & { code?: string }) | undefined;

  constructor(
    config: Settings,
    connection: Connection,
    audio: Buffer,
    frames: number,
    onOutcome: (o: Outcome) => void,
  ) {
    this.#config = config;
    this.#connection = connection;
    this.#audio = audio;
    this.#frames = frames;
    this.#onOutcome = onOutcome;
    this.#timer = setTimeout(() => this.#timeOut(), config.inferenceTimeoutMs);
    this.#send();
  }

  #send(): void {
    const session = this.#connection.session();
    // A connection that is opened for this request can't have been closed by the inference for being idle.
    if (session.connecting) this.#mayRetry = false;
    try {
      const stream = session.request(
        {
          ':method': 'POST',
          ':path': '/infer',
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

  #setListeners(stream: http2.ClientHttp2Stream, session: http2.ClientHttp2Session): void {
    stream.on('response', (headers) => {
      this.#status = Number(headers[':status']);
    });
    stream.on('data', (chunk: Buffer) => {
      this.#bodyBytes += chunk.length;
      if (this.#bodyBytes <= MAX_RESPONSE_BYTES) this.#body.push(chunk);
    });
    stream.on('error', (error) => {
      this.#error = error;
    });
    stream.on('end', () => {
      if (this.#status > 0 && !stream.aborted && !stream.rstCode) this.#settle(this.#outcome());
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
  abandon(): void {
    this.#release();
    this.#stream?.close(http2.constants.NGHTTP2_CANCEL);
  }

  /** Whether all audio is sent, so that its memory may be reused. */
  get isSent(): boolean {
    return this.#stream?.writableFinished === true;
  }

  #timeOut(): void {
    this.#connection.probe();
    const message = `no answer within ${this.#config.inferenceTimeoutMs} ms`;
    this.#settle({ failure: { kind: 'timeout', status: null, message } });
  }

  #fail(): void {
    const error = this.#error;
    const [kind, message]: [RequestFailure['kind'], string] = isHttp2Violation(error)
      ? ['parse_error', "the inference doesn't speak HTTP/2"]
      : ['connection_reset', 'the connection to the inference failed'];
    this.#settle({ failure: { kind, status: null, message: error ? `${message}: ${error.message}` : message } });
  }

  #settle(outcome: Outcome): void {
    const onOutcome = this.#onOutcome;
    this.#release();
    // The response arrived before all audio was sent, or there is no response.
    if (this.#stream && !this.#stream.writableFinished) this.#stream.close(http2.constants.NGHTTP2_CANCEL);
    onOutcome?.(outcome);
  }

  #release(): void {
    this.#onOutcome = undefined;
    clearTimeout(this.#timer);
  }

  #outcome(): Outcome {
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

/** Whether the peer violated HTTP/2. All other errors are failures of the connection. */
function isHttp2Violation(error: (Error & { code?: string }) | undefined): boolean {
  return error?.code === 'ERR_HTTP2_ERROR';
}

/** Whether the connection was closed by the peer or the network, not by this gateway. */
function isConnectionFailure(error: (Error & { code?: string }) | undefined): boolean {
  return !error || (error.code !== undefined && !isHttp2Violation(error));
}
