/**
 * One session, from the upgrade to the last byte. All of it runs on one thread.
 *
 * Until the start message has arrived, the socket is read as data arrives. From then on it is paused, and read only
 * when the clock visits the session: at its tick and a few times in between. The kernel buffers bytes in the meantime,
 * and one read returns many frames.
 */

import { Backlog } from './backlog.js';
import { AT, add, addLateness } from './books.js';
import * as protocol from './protocol.js';
import { FRAME_BYTES } from './protocol.js';
import { Schedule } from './schedule.js';

/** Bytes that may wait for a client, from the contract. */
const MAX_UNSENT_BYTES = 64 * 1024;
/** Time without progress after which a client counts as slow, in milliseconds; from the contract. */
const STALL_TIMEOUT_MS = 10_000;

/**
 * State that all sessions share.
 *
 * @typedef {object} Gateway
 * @property {import('./config.js').Config} config
 * @property {import('./books.js').Books} books
 * @property {import('./clock.js').Clock} clock
 * @property {import('./inference.js').Inference} inference
 * @property {import('./backlog.js').BatchPool} pool
 */

/** @typedef {import('./backlog.js').TakenFrames} TakenFrames */
/** @typedef {import('./books.js').CloseReason} CloseReason */

/**
 * The request in flight, and the frames that it carries.
 *
 * @typedef {object} PendingRequest
 * @property {import('./inference.js').Request} request
 * @property {Buffer} audio
 * @property {TakenFrames} taken the frames that the request carries
 * @property {number} sentAt time at which the request was sent, in milliseconds
 * @property {number} latenessMs
 */

/** The state of one session, which the clock visits. */
export class Session {
  #gateway;
  #ws;
  #socket;
  #backlog;
  /** Undefined before the start message. @type {Schedule | undefined} */
  #schedule;
  /** The request in flight; a single field enforces the contract's rule of one request. @type {PendingRequest | undefined} */
  #pending;
  #isDraining = false;
  #hasEnded = false;
  #bytesRead;
  #bytesWritten;
  /**
   * Bytes that had been sent at the last progress, and its time; undefined while nothing waits.
   *
   * @type {{sent: number, since: number} | undefined}
   */
  #stall;

  /**
   * @param {Gateway} gateway
   * @param {import('ws').WebSocket} ws
   * @param {import('node:net').Socket} socket of `ws`
   * @param {number} early number of WebSocket bytes that arrived with the upgrade request
   */
  constructor(gateway, ws, socket, early) {
    this.#gateway = gateway;
    this.#ws = ws;
    this.#socket = socket;
    this.#backlog = new Backlog(gateway.pool, gateway.config.maxBufferedFrames);
    this.#bytesRead = socket.bytesRead - early;
    this.#bytesWritten = socket.bytesWritten;
    gateway.books.update((counts) => {
      add(counts, AT.accepted);
      add(counts, AT.open);
    });
    ws.on('message', (data, isBinary) => this.#onMessage(/** @type {Buffer} */ (data), isBinary));
    ws.on('ping', () => this.#checkUnsent());
    ws.on('error', (error) => {
      const isTooBig = 'code' in error && error.code === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH';
      this.#end(isTooBig ? 'too_big' : 'protocol');
    });
    ws.on('close', (code) => this.#end(code === 1006 ? 'eof' : 'client'));
  }

  /**
   * @param {Buffer} data
   * @param {boolean} isBinary
   */
  #onMessage(data, isBinary) {
    if (this.#hasEnded || this.#isDraining) return;
    if (!this.#schedule) {
      if (!isBinary && protocol.isStart(data)) this.#start();
      else this.#reject(1002, 'first message must be start');
    } else if (!isBinary) {
      this.#reject(1002, 'expected binary PCM frames after start');
    } else if (data.length === FRAME_BYTES) {
      this.#backlog.append(data);
    } else {
      this.#reject(1003, 'expected 640 byte PCM frame');
    }
  }

  #start() {
    const { config, books, clock } = this.#gateway;
    const now = performance.now();
    const first = now + Math.random() * config.flushPhaseJitterMs + config.flushIntervalMs;
    this.#schedule = new Schedule(first, config.flushIntervalMs);
    books.update((counts) => {
      add(counts, AT.received);
      add(counts, AT.consumed);
    });
    // Frames may have arrived together with the start message.
    clock.add(now, this);
  }

  /** @type {(code: number, reason: string) => void} */
  #reject(code, reason) {
    this.#gateway.books.update((counts) => {
      add(counts, AT.received);
      add(counts, AT.dropped.protocol);
    });
    this.#ws.close(code, reason);
    this.#end('protocol');
  }

  /** Resumes the socket, so that the event loop reads it. */
  open() {
    if (!this.#hasEnded) this.#ws.resume();
  }

  /**
   * Handles what was read. Returns when the next visit is due, if there is one.
   *
   * @param {number} now
   */
  visit(now) {
    if (this.#hasEnded || this.#isDraining || !this.#schedule) return undefined;
    this.#countRead(now);
    if (this.#ws.readyState !== this.#ws.OPEN) {
      // A violation would have ended the session already, so the client has closed.
      this.#end('client');
      return undefined;
    }
    const latenessMs = this.#schedule.tick(now);
    if (latenessMs !== undefined) this.#tick(latenessMs);
    if (this.#isStalled(now)) this.#closeSlowConsumer();
    if (this.#hasEnded) return undefined;
    this.#ws.pause();
    return this.#schedule.nextVisit(now);
  }

  /**
   * Counts what was read, and admits the frames to the backlog.
   *
   * @param {number} now
   */
  #countRead(now) {
    const { received, dropped } = this.#backlog.admit(now);
    const { bytesRead, bytesWritten } = this.#socket;
    const readBytes = bytesRead - this.#bytesRead;
    const writtenBytes = bytesWritten - this.#bytesWritten;
    this.#bytesRead = bytesRead;
    this.#bytesWritten = bytesWritten;
    this.#gateway.books.update((counts) => {
      add(counts, AT.received, received);
      add(counts, AT.waiting, received - dropped);
      add(counts, AT.dropped.overflow, dropped);
      add(counts, AT.bytesReceived, readBytes);
      add(counts, AT.bytesSent, writtenBytes);
    });
  }

  /** @param {number} latenessMs */
  #tick(latenessMs) {
    const outcome = this.#pending ? 'skipped' : this.#backlog.waiting > 0 ? 'flushed' : 'empty';
    this.#gateway.books.update((counts) => {
      addLateness(counts, latenessMs);
      add(counts, AT.ticks[outcome]);
    });
    if (!this.#pending) this.#flush(latenessMs);
  }

  /**
   * Reports dropped frames, if any, and sends all waiting audio as one request, if any.
   *
   * @param {number} latenessMs
   */
  #flush(latenessMs) {
    const { config, inference, books } = this.#gateway;
    const overflow = this.#backlog.takeOverflow();
    if (overflow) {
      const message = `${config.maxBufferedFrames} frames waited: the oldest ${overflow.span.frames} were dropped`;
      this.#report(overflow, { kind: 'overflow', status: null, message }, latenessMs, null);
    }
    if (this.#hasEnded || this.#backlog.waiting === 0) return;
    const { audio, ...taken } = this.#backlog.take();
    const { frames } = taken.span;
    books.update((counts) => {
      add(counts, AT.waiting, -frames);
      add(counts, AT.inFlight, frames);
      add(counts, AT.requests);
      add(counts, AT.requestsInFlight);
      counts[AT.inFlightPerConnectionMax] = 1;
    });
    const request = inference.recognise(audio, frames, (outcome) => this.#complete(outcome));
    this.#pending = { request, audio, taken, sentAt: performance.now(), latenessMs };
  }

  /** @param {import('./inference.js').Outcome} outcome */
  #complete(outcome) {
    const { books, config, pool } = this.#gateway;
    const pending = this.#takePending();
    if (!pending) return;
    const { span } = pending.taken;
    const { failure } = outcome;
    books.update((counts) => {
      add(counts, failure ? AT.failed[/** @type {keyof typeof AT.failed} */ (failure.kind)] : AT.answered);
      add(counts, failure ? AT.dropped[failure.kind] : AT.delivered, span.frames);
      add(counts, AT.inFlight, -span.frames);
      add(counts, AT.requestsInFlight, -1);
    });
    if (failure) {
      this.#report(pending.taken, failure, pending.latenessMs, performance.now() - pending.sentAt);
    } else {
      if (pending.request.isSent) pool.release(pending.audio);
      this.#send(protocol.partial(span, outcome.recognition, config, pending.latenessMs));
    }
    if (this.#isDraining) this.#continueDrain();
  }

  #takePending() {
    const pending = this.#pending;
    this.#pending = undefined;
    return pending;
  }

  /**
   * Sends the client the error message that covers `taken`.
   *
   * @param {TakenFrames} taken
   * @param {protocol.Failure} failure
   * @param {number} flushLatenessMs
   * @param {number | null} inferenceElapsedMs
   */
  #report(taken, failure, flushLatenessMs, inferenceElapsedMs) {
    const now = performance.now();
    this.#send(
      protocol.error(taken.span, failure, {
        oldestAgeMs: now - taken.oldestReadAt,
        newestAgeMs: now - taken.newestReadAt,
        flushLatenessMs,
        inferenceElapsedMs,
        bufferedFrames: this.#backlog.waiting,
      }),
    );
  }

  /** @param {string} text */
  #send(text) {
    if (this.#hasEnded || this.#ws.readyState !== this.#ws.OPEN) return;
    this.#ws.send(text);
    this.#gateway.books.update((counts) => add(counts, AT.sent));
    this.#checkUnsent();
  }

  #checkUnsent() {
    if (this.#ws.bufferedAmount > MAX_UNSENT_BYTES) this.#closeSlowConsumer();
  }

  /**
   * Whether bytes wait and the client has read none for {@link STALL_TIMEOUT_MS}.
   *
   * @param {number} now
   */
  #isStalled(now) {
    const { bufferedAmount } = this.#ws;
    if (bufferedAmount === 0) {
      this.#stall = undefined;
      return false;
    }
    const sent = this.#socket.bytesWritten - bufferedAmount;
    if (this.#stall?.sent !== sent) this.#stall = { sent, since: now };
    return now - this.#stall.since >= STALL_TIMEOUT_MS;
  }

  /** Closes the connection of a client that doesn't read. */
  #closeSlowConsumer() {
    this.#ws.close(1013, 'client does not read');
    this.#end('slow_consumer');
  }

  /** Starts the drain when the gateway stops. Frames sent by now are still processed, later ones are not. */
  drain() {
    if (!this.#schedule) {
      this.shutDown();
      return;
    }
    this.open();
    setImmediate(() => {
      if (this.#hasEnded) return;
      this.#countRead(performance.now());
      this.#isDraining = true;
      if (this.#ws.readyState === this.#ws.OPEN) this.#continueDrain();
      else this.#end('client');
    });
  }

  #continueDrain() {
    if (!this.#hasEnded && !this.#pending) this.#flush(0);
    if (!this.#pending) this.shutDown();
  }

  /** Closes the connection with 1001, even if audio waits or a request is in flight. */
  shutDown() {
    if (this.#hasEnded) return;
    this.#ws.close(1001, 'gateway stops');
    this.#end('shutdown');
  }

  /**
   * Moves the session's frames and its connection to their final counters. Later inbound bytes are discarded.
   *
   * @param {CloseReason} reason
   */
  #end(reason) {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#countRead(performance.now());
    const { waiting } = this.#backlog;
    const pending = this.#takePending();
    pending?.request.abandon();
    const inFlight = pending?.taken.span.frames ?? 0;
    this.#gateway.books.update((counts) => {
      add(counts, AT.waiting, -waiting);
      add(counts, AT.inFlight, -inFlight);
      add(counts, AT.dropped.closed, waiting + inFlight);
      add(counts, AT.requestsInFlight, pending ? -1 : 0);
      add(counts, AT.abandoned, pending ? 1 : 0);
      add(counts, AT.open, -1);
      add(counts, AT.closed[reason]);
    });
    this.#backlog = new Backlog(this.#gateway.pool, 1);
    this.#ws.resume();
  }
}
