/**
 * One session, from the upgrade to the last byte. All of it runs on one thread.
 *
 * Until the start message has arrived, the socket is read as data arrives. From then on it is paused, and read when
 * the clock visits the session: at its tick and a few times in between. The kernel buffers bytes in the meantime, and
 * one read returns many frames.
 */

import { Backlog } from './backlog.js';
import { AT, add, addLateness } from './books.js';
import * as protocol from './protocol.js';
import { FRAME_BYTES } from './protocol.js';
import { Schedule } from './schedule.js';

/** Bytes that may wait for a client, from the contract. */
const MAX_UNREAD_BYTES = 64 * 1024;
/** Time without progress after which a client counts as slow, in milliseconds; from the contract. */
const PATIENCE_MS = 10_000;

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

/** @typedef {import('./backlog.js').Taken} Taken */
/** @typedef {import('./books.js').CloseReason} CloseReason */

/**
 * The request in flight, and the frames that it carries.
 *
 * @typedef {object} Flight
 * @property {import('./inference.js').Request} request
 * @property {Buffer} audio
 * @property {Taken} taken
 * @property {number} began
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
  /** The request in flight; a single field enforces the contract's rule of one request. @type {Flight | undefined} */
  #flight;
  #isDraining = false;
  #hasEnded = false;
  #bytesRead;
  #bytesWritten;
  /**
   * Bytes that had been sent at the last progress, and its time; undefined while nothing waits.
   *
   * @type {{left: number, since: number} | undefined}
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
    gateway.books.enter((counts) => {
      add(counts, AT.accepted);
      add(counts, AT.open);
    });
    ws.on('message', (data, isBinary) => this.#message(/** @type {Buffer} */ (data), isBinary));
    ws.on('ping', () => this.#checkUnread());
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
  #message(data, isBinary) {
    if (this.#hasEnded || this.#isDraining) return;
    if (!this.#schedule) {
      if (!isBinary && protocol.isStart(data)) this.#start();
      else this.#refuse(1002, 'first message must be start');
    } else if (!isBinary) {
      this.#refuse(1002, 'expected binary PCM frames after start');
    } else if (data.length === FRAME_BYTES) {
      this.#backlog.append(data);
    } else {
      this.#refuse(1003, 'expected 640 byte PCM frame');
    }
  }

  #start() {
    const { config, books, clock } = this.#gateway;
    const now = performance.now();
    const first = now + Math.random() * config.flushPhaseJitterMs + config.flushIntervalMs;
    this.#schedule = new Schedule(first, config.flushIntervalMs);
    books.enter((counts) => {
      add(counts, AT.received);
      add(counts, AT.consumed);
    });
    // Frames may have arrived together with the start message.
    clock.add(now, this);
  }

  /** @type {(code: number, reason: string) => void} */
  #refuse(code, reason) {
    this.#gateway.books.enter((counts) => {
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
    this.#admit(now);
    if (this.#ws.readyState !== this.#ws.OPEN) {
      // A violation would have ended the session already, so the client has closed.
      this.#end('client');
      return undefined;
    }
    const latenessMs = this.#schedule.tick(now);
    if (latenessMs !== undefined) this.#tick(latenessMs);
    if (this.#isStalled(now)) this.#giveUp();
    if (this.#hasEnded) return undefined;
    this.#ws.pause();
    return this.#schedule.visit(now);
  }

  /**
   * Counts what was read, and admits the frames to the backlog.
   *
   * @param {number} now
   */
  #admit(now) {
    const { arrived, dropped } = this.#backlog.admit(now);
    const { bytesRead, bytesWritten } = this.#socket;
    const readBytes = bytesRead - this.#bytesRead;
    const writtenBytes = bytesWritten - this.#bytesWritten;
    this.#bytesRead = bytesRead;
    this.#bytesWritten = bytesWritten;
    this.#gateway.books.enter((counts) => {
      add(counts, AT.received, arrived);
      add(counts, AT.waiting, arrived - dropped);
      add(counts, AT.dropped.overflow, dropped);
      add(counts, AT.bytesReceived, readBytes);
      add(counts, AT.bytesSent, writtenBytes);
    });
  }

  /** @param {number} latenessMs */
  #tick(latenessMs) {
    const found = this.#flight ? 'skipped' : this.#backlog.waiting > 0 ? 'flushed' : 'empty';
    this.#gateway.books.enter((counts) => {
      addLateness(counts, latenessMs);
      add(counts, AT.ticks[found]);
    });
    if (!this.#flight) this.#flush(latenessMs);
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
    books.enter((counts) => {
      add(counts, AT.waiting, -frames);
      add(counts, AT.inFlight, frames);
      add(counts, AT.requests);
      add(counts, AT.requestsInFlight);
      counts[AT.inFlightPerConnectionMax] = 1;
    });
    const request = inference.recognise(audio, frames, (outcome) => this.#land(outcome));
    this.#flight = { request, audio, taken, began: performance.now(), latenessMs };
  }

  /** @param {import('./inference.js').Outcome} outcome */
  #land(outcome) {
    const { books, config, pool } = this.#gateway;
    const flight = this.#leaveFlight();
    if (!flight) return;
    const { span } = flight.taken;
    const { failure } = outcome;
    books.enter((counts) => {
      add(counts, failure ? AT.failed[/** @type {keyof typeof AT.failed} */ (failure.kind)] : AT.answered);
      add(counts, failure ? AT.dropped[failure.kind] : AT.delivered, span.frames);
      add(counts, AT.inFlight, -span.frames);
      add(counts, AT.requestsInFlight, -1);
    });
    if (failure) {
      this.#report(flight.taken, failure, flight.latenessMs, performance.now() - flight.began);
    } else {
      if (flight.request.isSent) pool.give(flight.audio);
      this.#say(protocol.partial(span, outcome.recognition, config, flight.latenessMs));
    }
    if (this.#isDraining) this.#continueDrain();
  }

  #leaveFlight() {
    const flight = this.#flight;
    this.#flight = undefined;
    return flight;
  }

  /**
   * Sends the client the error message that covers `taken`.
   *
   * @param {Taken} taken
   * @param {protocol.Failure} failure
   * @param {number} flushLatenessMs
   * @param {number | null} inferenceElapsedMs
   */
  #report(taken, failure, flushLatenessMs, inferenceElapsedMs) {
    const now = performance.now();
    this.#say(
      protocol.error(taken.span, failure, {
        oldestAgeMs: now - taken.oldestRead,
        newestAgeMs: now - taken.newestRead,
        flushLatenessMs,
        inferenceElapsedMs,
        bufferedFrames: this.#backlog.waiting,
      }),
    );
  }

  /** @param {string} text */
  #say(text) {
    if (this.#hasEnded || this.#ws.readyState !== this.#ws.OPEN) return;
    this.#ws.send(text);
    this.#gateway.books.enter((counts) => add(counts, AT.sent));
    this.#checkUnread();
  }

  #checkUnread() {
    if (this.#ws.bufferedAmount > MAX_UNREAD_BYTES) this.#giveUp();
  }

  /**
   * Whether bytes wait and the client has read none for {@link PATIENCE_MS}.
   *
   * @param {number} now
   */
  #isStalled(now) {
    const { bufferedAmount } = this.#ws;
    if (bufferedAmount === 0) {
      this.#stall = undefined;
      return false;
    }
    const left = this.#socket.bytesWritten - bufferedAmount;
    if (this.#stall?.left !== left) this.#stall = { left, since: now };
    return now - this.#stall.since >= PATIENCE_MS;
  }

  /** Closes the connection of a client that doesn't read. */
  #giveUp() {
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
      this.#admit(performance.now());
      this.#isDraining = true;
      if (this.#ws.readyState === this.#ws.OPEN) this.#continueDrain();
      else this.#end('client');
    });
  }

  #continueDrain() {
    if (!this.#hasEnded && !this.#flight) this.#flush(0);
    if (!this.#flight) this.shutDown();
  }

  /** Closes the connection with 1001, even if audio or a request is left. */
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
    this.#admit(performance.now());
    const { waiting } = this.#backlog;
    const flight = this.#leaveFlight();
    flight?.request.abandon();
    const inFlight = flight?.taken.span.frames ?? 0;
    this.#gateway.books.enter((counts) => {
      add(counts, AT.waiting, -waiting);
      add(counts, AT.inFlight, -inFlight);
      add(counts, AT.dropped.closed, waiting + inFlight);
      add(counts, AT.requestsInFlight, flight ? -1 : 0);
      add(counts, AT.abandoned, flight ? 1 : 0);
      add(counts, AT.open, -1);
      add(counts, AT.closed[reason]);
    });
    this.#backlog = new Backlog(this.#gateway.pool, 1);
    this.#ws.resume();
  }
}
