/** One session, from the upgrade to the last byte. All of it runs on one thread. */

import type { ServerWebSocket } from 'bun';

import { Backlog, type BatchPool, type Taken } from './backlog.ts';
import { AT, add, addLateness, type Books, type CloseReason } from './books.ts';
import type { Clock, Visited } from './clock.ts';
import type { Config } from './config.ts';
import type { Inference, InferenceRequest, Outcome } from './inference.ts';
import * as protocol from './protocol.ts';
import { FRAME_BYTES } from './protocol.ts';
import { Schedule } from './schedule.ts';

/** Bytes that may wait for a client, from the contract. */
const MAX_UNREAD_BYTES = 64 * 1024;
/** Time without progress after which a client counts as slow, in milliseconds; from the contract. */
const PATIENCE_MS = 10_000;
/** Time limit for the close handshake, in milliseconds. */
const FAREWELL_MS = 1000;
/** Size of the masking key in a client's frame, in bytes. */
const MASK_BYTES = 4;

/** State that all sessions share. */
export interface Gateway {
  config: Config;
  books: Books;
  clock: Clock;
  inference: Inference;
  pool: BatchPool;
}

export type Socket = ServerWebSocket<Session>;

/** The request in flight, and the frames that it carries. */
interface Flight {
  request: InferenceRequest;
  audio: Buffer;
  taken: Taken;
  began: number;
  latenessMs: number;
}

export class Session implements Visited {
  readonly #gateway: Gateway;
  #socket: Socket | undefined;
  #backlog: Backlog;
  /** Undefined before the start message. */
  #schedule: Schedule | undefined;
  /** The request in flight. A single field enforces the contract's rule of one request. */
  #flight: Flight | undefined;
  #isDraining = false;
  #hasEnded = false;
  /** Bytes that waited at the last check, and the time of the last progress; undefined while nothing waits. */
  #stall: { waiting: number; since: number } | undefined;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    this.#backlog = new Backlog(gateway.pool, gateway.config.maxBufferedFrames);
  }

  /** Called when the upgrade is complete. */
  open(socket: Socket): void {
    this.#socket = socket;
    this.#gateway.books.enter((counts) => {
      add(counts, AT.accepted);
      add(counts, AT.open);
    });
  }

  message(message: string | Buffer): void {
    if (this.#hasEnded || this.#isDraining) return;
    if (!this.#schedule) {
      if (typeof message === 'string' && protocol.isStart(message)) this.#start(message.length);
      else this.#refuse(1002, 'first message must be start');
    } else if (typeof message === 'string') {
      this.#refuse(1002, 'expected binary PCM frames after start');
    } else if (message.length === FRAME_BYTES) {
      this.#frame(message);
    } else {
      this.#refuse(1003, 'expected 640 byte PCM frame');
    }
  }

  #frame(frame: Buffer): void {
    this.#backlog.append(frame);
    const { dropped } = this.#backlog.admit(performance.now());
    this.#gateway.books.enter((counts) => {
      add(counts, AT.received);
      add(counts, AT.waiting, 1 - dropped);
      if (dropped > 0) add(counts, AT.dropped.overflow, dropped);
      add(counts, AT.bytesReceived, onWire(FRAME_BYTES) + MASK_BYTES);
    });
  }

  #start(bytes: number): void {
    const { config, books, clock } = this.#gateway;
    const first = performance.now() + Math.random() * config.flushPhaseJitterMs + config.flushIntervalMs;
    this.#schedule = new Schedule(first, config.flushIntervalMs);
    books.enter((counts) => {
      add(counts, AT.received);
      add(counts, AT.consumed);
      add(counts, AT.bytesReceived, onWire(bytes) + MASK_BYTES);
    });
    clock.add(first, this);
  }

  #refuse(code: number, reason: string): void {
    this.#gateway.books.enter((counts) => {
      add(counts, AT.received);
      add(counts, AT.dropped.protocol);
    });
    this.#close(code, reason, 'protocol');
  }

  /** Counts a ping, to which the library has replied. */
  ping(payload: Buffer): void {
    this.#gateway.books.enter((counts) => {
      add(counts, AT.bytesReceived, onWire(payload.length) + MASK_BYTES);
      add(counts, AT.bytesSent, onWire(payload.length));
    });
    this.#checkUnread();
  }

  /** Runs the tick that is due. Returns when the next one is due, or `undefined` once the session has ended. */
  visit(now: number): number | undefined {
    if (this.#hasEnded || this.#isDraining || !this.#schedule) return undefined;
    const latenessMs = this.#schedule.tick(now);
    if (latenessMs !== undefined) this.#tick(latenessMs);
    if (this.#isStalled(now)) this.#giveUp();
    return this.#hasEnded ? undefined : this.#schedule.due;
  }

  #tick(latenessMs: number): void {
    const found = this.#flight ? 'skipped' : this.#backlog.waiting > 0 ? 'flushed' : 'empty';
    this.#gateway.books.enter((counts) => {
      addLateness(counts, latenessMs);
      add(counts, AT.ticks[found]);
    });
    if (!this.#flight) this.#flush(latenessMs);
  }

  /** Reports dropped frames, if any, and sends all waiting audio as one request, if any. */
  #flush(latenessMs: number): void {
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

  #land(outcome: Outcome): void {
    const { books, config, pool } = this.#gateway;
    const flight = this.#leaveFlight();
    if (!flight) return;
    const { span } = flight.taken;
    const { failure } = outcome;
    books.enter((counts) => {
      add(counts, failure ? AT.failed[failure.kind] : AT.answered);
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

  #leaveFlight(): Flight | undefined {
    const flight = this.#flight;
    this.#flight = undefined;
    return flight;
  }

  /** Sends the client the error message that covers `taken`. */
  #report(taken: Taken, failure: protocol.Failure, flushLatenessMs: number, inferenceElapsedMs: number | null): void {
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

  #say(text: string): void {
    if (this.#hasEnded) return;
    this.#socket?.sendText(text);
    this.#gateway.books.enter((counts) => {
      add(counts, AT.sent);
      add(counts, AT.bytesSent, onWire(Buffer.byteLength(text)));
    });
    this.#checkUnread();
  }

  #checkUnread(): void {
    if ((this.#socket?.getBufferedAmount() ?? 0) > MAX_UNREAD_BYTES) this.#giveUp();
  }

  /** Whether bytes wait and the client has read none for {@link PATIENCE_MS}. */
  #isStalled(now: number): boolean {
    const waiting = this.#socket?.getBufferedAmount() ?? 0;
    if (waiting === 0) {
      this.#stall = undefined;
      return false;
    }
    // New messages only increase the amount; a decrease means that the client has read.
    if (!this.#stall || waiting < this.#stall.waiting) this.#stall = { waiting, since: now };
    this.#stall.waiting = waiting;
    return now - this.#stall.since >= PATIENCE_MS;
  }

  /** Closes the connection of a client that doesn't read. */
  #giveUp(): void {
    this.#close(1013, 'client does not read', 'slow_consumer');
  }

  /** Starts the drain when the gateway stops. Frames received by now are still sent, later ones are not. */
  drain(): void {
    if (this.#hasEnded) return;
    this.#isDraining = true;
    this.#continueDrain();
  }

  #continueDrain(): void {
    if (!this.#hasEnded && !this.#flight) this.#flush(0);
    if (!this.#flight) this.shutDown();
  }

  /** Closes the connection with 1001, even if audio or a request is left. */
  shutDown(): void {
    this.#close(1001, 'gateway stops', 'shutdown');
  }

  #close(code: number, reason: string, why: CloseReason): void {
    if (this.#hasEnded) return;
    const socket = this.#socket;
    this.#end(why);
    socket?.close(code, reason);
    // A client that doesn't read doesn't complete the close handshake either.
    setTimeout(() => socket?.terminate(), FAREWELL_MS).unref();
  }

  /** Called when the connection is closed. The library's code shows which side closed it. */
  closed(code: number): void {
    this.#end(
      code === 1006 ? 'eof' : code === 1009 ? 'too_big' : code === 1002 || code === 1007 ? 'protocol' : 'client',
    );
  }

  /** Moves the session's frames and its connection to their final counters. */
  #end(reason: CloseReason): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
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
  }
}

/** Size of an unmasked frame on the wire, in bytes. */
function onWire(payload: number): number {
  return payload + (payload < 126 ? 2 : payload < 65_536 ? 4 : 10);
}
