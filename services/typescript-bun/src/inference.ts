/** Requests to the inference: HTTP/2 with prior knowledge (h2c), over a fixed number of connections that sessions share. */

import http2 from 'node:http2';
import net from 'node:net';

import type { Config } from './config.ts';
import { AnswerError, parseRecognition, type Recognition, type RequestFailure } from './protocol.ts';

/** Longest time for a connection to open, and for one that was asked whether it lives to say so, in milliseconds. */
const PATIENCE_MS = 1000;
/** An answer is some hundred bytes; what is longer is none. */
const MAX_ANSWER_BYTES = 64 * 1024;
/** What one connection may hold, in MB: with the default of 10 the batches of 300 sessions that flush at once. */
const MAX_SESSION_MEMORY_MB = 1024;

/** How a request ended. */
export type Outcome = { recognition: Recognition; failure?: undefined } | { failure: RequestFailure };

type Settings = Pick<Config, 'inference' | 'inferenceHttpClients' | 'inferenceTimeoutMs' | 'cpuPasses'>;

export class Inference {
  readonly #config: Settings;
  readonly #connections: Connection[];
  /** Requests so far: they take the connections in turn. */
  #turn = 0;

  constructor(config: Settings) {
    this.#config = config;
    this.#connections = Array.from({ length: config.inferenceHttpClients }, () => new Connection(config.inference));
  }

  /** Has a batch recognised. `done` is called once, later, unless the request is abandoned. */
  recognise(audio: Buffer, frames: number, done: (outcome: Outcome) => void): InferenceRequest {
    this.#turn = (this.#turn + 1) % this.#connections.length;
    return new InferenceRequest(this.#config, this.#connections[this.#turn] as Connection, audio, frames, done);
  }

  /** Ends all connections, and with them what is in flight. */
  close(): void {
    for (const connection of this.#connections) connection.close();
  }
}

/** One HTTP/2 connection, opened when it is needed and replaced when it is gone. */
class Connection {
  readonly #address: { host: string; port: number };
  #session: http2.ClientHttp2Session | undefined;
  #isProbed = false;

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
    const timer = setTimeout(() => session.destroy(), PATIENCE_MS);
    session.once('connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
    // Each request hears of it by itself.
    session.on('error', () => {});
    return session;
  }

  /** A request was not answered in time: gives the connection up if it doesn't answer anything. */
  probe(): void {
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

  close(): void {
    this.#session?.destroy();
  }
}

/** One batch on its way. */
export class InferenceRequest {
  readonly #config: Settings;
  readonly #connection: Connection;
  readonly #audio: Buffer;
  readonly #frames: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  #done: ((outcome: Outcome) => void) | undefined;
  #stream: http2.ClientHttp2Stream | undefined;
  /** Whether the connection may be replaced if it turns out to be closed. */
  #mayReplace = true;
  #status = 0;
  readonly #body: Buffer[] = [];
  #bodyBytes = 0;
  #error: (Error & { code?: string }) | undefined;

  constructor(config: Settings, connection: Connection, audio: Buffer, frames: number, done: (o: Outcome) => void) {
    this.#config = config;
    this.#connection = connection;
    this.#audio = audio;
    this.#frames = frames;
    this.#done = done;
    this.#timer = setTimeout(() => this.#timeOut(), config.inferenceTimeoutMs);
    this.#send();
  }

  #send(): void {
    const session = this.#connection.session();
    // What is opened for this request can't have been closed by an inference that was tired of waiting.
    if (session.connecting) this.#mayReplace = false;
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
      this.#listen(stream, session);
      stream.end(this.#audio);
    } catch (error) {
      this.#error = error instanceof Error ? error : new Error(String(error));
      setImmediate(() => this.#fail());
    }
  }

  #listen(stream: http2.ClientHttp2Stream, session: http2.ClientHttp2Session): void {
    stream.on('response', (headers) => {
      this.#status = Number(headers[':status']);
    });
    stream.on('data', (chunk: Buffer) => {
      this.#bodyBytes += chunk.length;
      if (this.#bodyBytes <= MAX_ANSWER_BYTES) this.#body.push(chunk);
    });
    stream.on('error', (error) => {
      this.#error = error;
    });
    stream.on('end', () => {
      if (this.#status > 0 && !stream.aborted && !stream.rstCode) this.#settle(this.#answer());
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
  abandon(): void {
    this.#release();
    this.#stream?.close(http2.constants.NGHTTP2_CANCEL);
  }

  /** Whether all of the audio has left: its memory may be used again. */
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
    const [kind, message]: [RequestFailure['kind'], string] = isForeign(error)
      ? ['parse_error', "the inference doesn't speak HTTP/2"]
      : ['connection_reset', 'the connection to the inference failed'];
    this.#settle({ failure: { kind, status: null, message: error ? `${message}: ${error.message}` : message } });
  }

  #settle(outcome: Outcome): void {
    const done = this.#done;
    this.#release();
    // An answer that came before all of the audio had left, or none.
    if (this.#stream && !this.#stream.writableFinished) this.#stream.close(http2.constants.NGHTTP2_CANCEL);
    done?.(outcome);
  }

  #release(): void {
    this.#done = undefined;
    clearTimeout(this.#timer);
  }

  #answer(): Outcome {
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

/** Whether the peer broke the rules of HTTP/2, and is no inference. All else is a matter of the connection. */
function isForeign(error: (Error & { code?: string }) | undefined): boolean {
  return error?.code === 'ERR_HTTP2_ERROR';
}

/** Whether the connection was closed by the peer or on the way, and not given up by us. */
function isGone(error: (Error & { code?: string }) | undefined): boolean {
  return !error || (error.code !== undefined && !isForeign(error));
}
