/** One session, from the upgrade to the last byte. All of it runs on one thread. */

import type { ServerWebSocket } from 'bun';

import { Backlog, type BatchPool, type TakenFrames } from './backlog.ts';
import { AT, add, addLateness, type Books, type CloseReason } from './books.ts';
import type { Clock, Visited } from './clock.ts';
import type { Config } from './config.ts';
import type { Inference, InferenceRequest, Outcome } from './inference.ts';
import * as protocol from './protocol.ts';
import { FRAME_BYTES } from './protocol.ts';
import { Schedule } from './schedule.ts';

/** Bytes that may wait for a client, from the contract. */
const MAX_UNSENT_BYTES = 64 * 1024;
/** Time without progress after which a client counts as slow, in milliseconds; from the contract. */
const STALL_TIMEOUT_MS = 10_000;
/** Time limit for the close handshake, in milliseconds. */
const CLOSE_TIMEOUT_MS = 1000;
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
interface PendingRequest {
  request: InferenceRequest;
  audio: Buffer;
  taken: TakenFrames;
  sentAt: number;
  latenessMs: number;
}

export class Session implements Visited {
  readonly #gateway: Gateway;
  #socket: Socket | undefined;
  #backlog: Backlog;
  /** Undefined before the start message. */
  #schedule: Schedule | undefined;
  /** The request in flight. A single field enforces the contract's rule of one request. */
  #pending: PendingRequest | undefined;
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
    this.#gateway.books.update((counts) => {
      add(counts, AT.accepted);
      add(counts, AT.open);
    });
  }

  message(message: string | Buffer): void {
    if (this.#hasEnded || this.#isDraining) return;
    if (!this.#schedule) {
      if (typeof message === 'string' && protocol.isStart(message)) this.#start(message.length);
      else this.#reject(1002, 'first message must be start');
    } else if (typeof message === 'string') {
      this.#reject(1002, 'expected binary PCM frames after start');
    } else if (message.length === FRAME_BYTES) {
      this.#receiveFrame(message);
    } else {
      this.#reject(1003, 'expected 640 byte PCM frame');
    }
  }

  #receiveFrame(frame: Buffer): void {
    this.#backlog.append(frame);
    const { dropped } = this.#backlog.admit(performance.now());
    this.#gateway.books.update((counts) => {
      add(counts, AT.received);
      add(counts, AT.waiting, 1 - dropped);
      if (dropped > 0) add(counts, AT.dropped.overflow, dropped);
      add(counts, AT.bytesReceived, wireBytes(FRAME_BYTES) + MASK_BYTES);
    });
  }

  #start(bytes: number): void {
    const { config, books, clock } = this.#gateway;
    const first = performance.now() + Math.random() * config.flushPhaseJitterMs + config.flushIntervalMs;
    this.#schedule = new Schedule(first, config.flushIntervalMs);
    books.update((counts) => {
      add(counts, AT.received);
      add(counts, AT.consumed);
      add(counts, AT.bytesReceived, wireBytes(bytes) + MASK_BYTES);
    });
    clock.add(first, this);
  }

  #reject(code: number, reason: string): void {
    this.#gateway.books.update((counts) => {
      add(counts, AT.received);
      add(counts, AT.dropped.protocol);
    });
    this.#close(code, reason, 'protocol');
  }

  /** Counts a ping, to which the library has replied. */
  ping(payload: Buffer): void {
    this.#gateway.books.update((counts) => {
      add(counts, AT.bytesReceived, wireBytes(payload.length) + MASK_BYTES);
      add(counts, AT.bytesSent, wireBytes(payload.length));
    });
    this.#checkUnsent();
  }

  /** Runs the tick that is due. Returns when the next one is due, or `undefined` once the session has ended. */
  visit(now: number): number | undefined {
    if (this.#hasEnded || this.#isDraining || !this.#schedule) return undefined;
    const latenessMs = this.#schedule.tick(now);
    if (latenessMs !== undefined) this.#tick(latenessMs);
    if (this.#isStalled(now)) this.#closeSlowConsumer();
    return this.#hasEnded ? undefined : this.#schedule.due;
  }

  #tick(latenessMs: number): void {
    const outcome = this.#pending ? 'skipped' : this.#backlog.waiting > 0 ? 'flushed' : 'empty';
    this.#gateway.books.update((counts) => {
      addLateness(counts, latenessMs);
      add(counts, AT.ticks[outcome]);
    });
    if (!this.#pending) this.#flush(latenessMs);
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

  #complete(outcome: Outcome): void {
    const { books, config, pool } = this.#gateway;
    const pending = this.#takePending();
    if (!pending) return;
    const { span } = pending.taken;
    const { failure } = outcome;
    books.update((counts) => {
      add(counts, failure ? AT.failed[failure.kind] : AT.answered);
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

  #takePending(): PendingRequest | undefined {
    const pending = this.#pending;
    this.#pending = undefined;
    return pending;
  }

  /** Sends the client the error message that covers `taken`. */
  #report(
    taken: TakenFrames,
    failure: protocol.Failure,
    flushLatenessMs: number,
    inferenceElapsedMs: number | null,
  ): void {
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

  #send(text: string): void {
    if (this.#hasEnded) return;
    this.#socket?.sendText(text);
    this.#gateway.books.update((counts) => {
      add(counts, AT.sent);
      add(counts, AT.bytesSent, wireBytes(Buffer.byteLength(text)));
    });
    this.#checkUnsent();
  }

  #checkUnsent(): void {
    if ((this.#socket?.getBufferedAmount() ?? 0) > MAX_UNSENT_BYTES) this.#closeSlowConsumer();
  }

  /** Whether bytes wait and the client has read none for {@link STALL_TIMEOUT_MS}. */
  #isStalled(now: number): boolean {
    const waiting = this.#socket?.getBufferedAmount() ?? 0;
    if (waiting === 0) {
      this.#stall = undefined;
      return false;
    }
    // New messages only increase the amount; a decrease means that the client has read.
    if (!this.#stall || waiting < this.#stall.waiting) this.#stall = { waiting, since: now };
    this.#stall.waiting = waiting;
    return now - this.#stall.since >= STALL_TIMEOUT_MS;
  }

  /** Closes the connection of a client that doesn't read. */
  #closeSlowConsumer(): void {
    this.#close(1013, 'client does not read', 'slow_consumer');
  }

  /** Starts the drain when the gateway stops. Frames received by now are still sent, later ones are not. */
  drain(): void {
    if (this.#hasEnded) return;
    this.#isDraining = true;
    this.#continueDrain();
  }

  #continueDrain(): void {
    if (!this.#hasEnded && !this.#pending) this.#flush(0);
    if (!this.#pending) this.shutDown();
  }

  /** Closes the connection with 1001, even if audio waits or a request is in flight. */
  shutDown(): void {
    this.#close(1001, 'gateway stops', 'shutdown');
  }

  #close(code: number, reason: string, label: CloseReason): void {
    if (this.#hasEnded) return;
    const socket = this.#socket;
    this.#end(label);
    socket?.close(code, reason);
    // A client that doesn't read doesn't complete the close handshake either.
    setTimeout(() => socket?.terminate(), CLOSE_TIMEOUT_MS).unref();
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
  }
}

/** Size of an unmasked frame on the wire, in bytes. */
function wireBytes(payload: number): number {
  return payload + (payload < 126 ? 2 : payload < 65_536 ? 4 : 10);
}
