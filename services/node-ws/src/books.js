/**
 * The gateway's books: counters in shared memory, so that the thread of the metrics port reads them while the
 * sessions' thread works.
 *
 * The version is odd during a write. A reader that finds it odd, or changed at the end, reads again (a seqlock): each
 * snapshot is consistent, and the writer never waits.
 */

import { FRAME_BYTES, REQUEST_FAILURES } from './protocol.js';

/** Upper bounds of the histogram of flush lateness, in seconds. */
export const LATENESS_BOUNDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

const DROPPED = /** @type {const} */ (['protocol', 'overflow', ...REQUEST_FAILURES, 'closed']);
const CLOSED = /** @type {const} */ (['client', 'eof', 'protocol', 'too_big', 'slow_consumer', 'shutdown']);
const REJECTED = /** @type {const} */ (['full', 'draining', 'handshake']);
const TICKS = /** @type {const} */ (['flushed', 'skipped', 'empty']);

/** @typedef {(typeof CLOSED)[number]} CloseReason */
/** @typedef {(typeof REJECTED)[number]} RejectReason */
/** @typedef {(typeof DROPPED)[number]} DropReason */

/** Labels of each family, in the order of their counters. */
export const LABELS = { dropped: DROPPED, closed: CLOSED, rejected: REJECTED, failed: REQUEST_FAILURES, ticks: TICKS };

let counterCount = 0;
const nextIndex = () => counterCount++;
/** @type {<Label extends string>(labels: readonly Label[]) => Record<Label, number>} */
const indexes = (labels) => /** @type {any} */ (Object.fromEntries(labels.map((label) => [label, nextIndex()])));

/** Index of each counter. */
export const AT = Object.freeze({
  /** 1 while connections are accepted, else 0. */
  accepting: nextIndex(),
  /** Start messages, audio frames, and complete messages that were refused. */
  received: nextIndex(),
  consumed: nextIndex(),
  delivered: nextIndex(),
  dropped: indexes(DROPPED),
  /** Frames that wait for their session's next tick. */
  waiting: nextIndex(),
  /** Frames of requests in flight. */
  inFlight: nextIndex(),
  sent: nextIndex(),
  bytesReceived: nextIndex(),
  bytesSent: nextIndex(),
  accepted: nextIndex(),
  open: nextIndex(),
  closed: indexes(CLOSED),
  rejected: indexes(REJECTED),
  requests: nextIndex(),
  answered: nextIndex(),
  failed: indexes(REQUEST_FAILURES),
  abandoned: nextIndex(),
  requestsInFlight: nextIndex(),
  /** Largest number of requests ever in flight for one connection. The contract allows 1. */
  inFlightPerConnectionMax: nextIndex(),
  ticks: indexes(TICKS),
  /** Ticks per bucket, not cumulative: one bucket per bound, and one beyond the last. */
  lateness: [...LATENESS_BOUNDS, Number.POSITIVE_INFINITY].map(nextIndex),
  latenessSeconds: nextIndex(),
});

/** Size of the version, which precedes the counters, in bytes. */
const VERSION_BYTES = 8;

export class Books {
  /** Memory to share with the reader. */
  memory = new SharedArrayBuffer(VERSION_BYTES + counterCount * Float64Array.BYTES_PER_ELEMENT);
  #version = new Int32Array(this.memory, 0, 1);
  #counts = new Float64Array(this.memory, VERSION_BYTES);

  constructor() {
    this.#counts[AT.accepting] = 1;
  }

  /**
   * Changes counters. All changes of one call become visible at once.
   *
   * @param {(counts: Float64Array) => void} change
   */
  update(change) {
    Atomics.add(this.#version, 0, 1);
    try {
      change(this.#counts);
    } finally {
      Atomics.add(this.#version, 0, 1);
    }
  }

  /**
   * Reads one counter. Only for the thread that writes.
   *
   * @param {number} at
   */
  get(at) {
    return /** @type {number} */ (this.#counts[at]);
  }
}

/**
 * Adds to one counter.
 *
 * @param {Float64Array} counts
 * @param {number} at
 * @param {number} [amount]
 */
export function add(counts, at, amount = 1) {
  // Every index in AT is within the array.
  counts[at] = /** @type {number} */ (counts[at]) + amount;
}

/**
 * Adds a tick to the histogram of lateness.
 *
 * @param {Float64Array} counts
 * @param {number} latenessMs
 */
export function addLateness(counts, latenessMs) {
  const seconds = latenessMs / 1000;
  const bucket = LATENESS_BOUNDS.findIndex((bound) => seconds <= bound);
  const at = AT.lateness.at(bucket);
  if (at !== undefined) add(counts, at);
  add(counts, AT.latenessSeconds, seconds);
}

/**
 * Returns a consistent copy of books that another thread writes.
 *
 * @param {SharedArrayBuffer} memory
 */
export function read(memory) {
  const version = new Int32Array(memory, 0, 1);
  for (;;) {
    const before = Atomics.load(version, 0);
    if (before % 2 === 0) {
      const counts = new Float64Array(memory, VERSION_BYTES).slice();
      if (Atomics.load(version, 0) === before) return counts;
    }
    // The writer may have been preempted during a write; waiting gives it the CPU.
    Atomics.wait(version, 0, before, 1);
  }
}

/**
 * Returns the sum of the snapshots of several processes.
 *
 * @param {ArrayLike<number>[]} snapshots
 */
export function sum(snapshots) {
  const total = new Float64Array(counterCount);
  for (const snapshot of snapshots) {
    for (let at = 0; at < counterCount; at++) add(total, at, snapshot[at]);
  }
  const largest = snapshots.map((snapshot) => snapshot[AT.inFlightPerConnectionMax] ?? 0);
  total[AT.inFlightPerConnectionMax] = Math.max(0, ...largest);
  return total;
}

/**
 * Audio that is held, waiting or in flight, in bytes.
 *
 * @param {Float64Array} counts
 */
export function bufferedBytes(counts) {
  return ((counts[AT.waiting] ?? 0) + (counts[AT.inFlight] ?? 0)) * FRAME_BYTES;
}
