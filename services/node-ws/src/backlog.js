/**
 * The audio of a session that waits for the next tick: bytes, sequence numbers, and read times. It is bounded: beyond
 * the limit the oldest frames are dropped.
 */

import { FRAME_BYTES } from './protocol.js';

/** Maximum of spare buffers. */
const MAX_SPARE = 256;

/** A pool of buffers with the usual size of a batch, because large buffers are expensive to allocate. */
export class BatchPool {
  /** @type {Buffer[]} */
  #spare = [];
  /** Capacity of a buffer in frames. */
  frames;

  /** @param {number} frames */
  constructor(frames) {
    this.frames = frames;
  }

  /** Returns a buffer with undefined content. */
  take() {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.frames * FRAME_BYTES);
  }

  /**
   * Returns the memory of a batch to the pool. The caller must not use it any more.
   *
   * @param {Buffer} audio the whole buffer or a part of it
   */
  release(audio) {
    if (audio.buffer.byteLength !== this.frames * FRAME_BYTES || this.#spare.length >= MAX_SPARE) return;
    this.#spare.push(Buffer.from(audio.buffer));
  }
}

/**
 * Frames that were removed from the backlog, and when they were read.
 *
 * @typedef {object} TakenFrames
 * @property {import('./protocol.js').Span} span
 * @property {number} oldestReadAt
 * @property {number} newestReadAt
 */

export class Backlog {
  #pool;
  #max;
  /** A ring buffer of frames; undefined while nothing waits. @type {Buffer | undefined} */
  #buffer;
  /** Capacity of the ring in frames. */
  #capacity = 0;
  /** Index of the oldest frame in the ring. */
  #head = 0;
  /** Number of frames in the ring. */
  #count = 0;
  /** Number of frames that were appended and dropped again since the last `admit`. */
  #dropped = 0;
  /** Sequence number of the last frame that was taken or dropped. */
  #lastRemoved = 0;
  /** Sequence number of the last frame that was admitted. */
  #lastAdmitted = 0;
  /** Read times of groups of frames: those after the previous mark, up to `newest`. @type {{newest: number, readAt: number}[]} */
  #marks = [];
  /** @type {TakenFrames | undefined} */
  #overflow;

  /**
   * @param {BatchPool} pool
   * @param {number} max frames that may wait
   */
  constructor(pool, max) {
    this.#pool = pool;
    this.#max = max;
  }

  /**
   * Copies a frame of {@link FRAME_BYTES} into the ring.
   *
   * @param {Uint8Array} frame
   */
  append(frame) {
    if (this.#count === this.#capacity) this.#makeRoom();
    const index = (this.#head + this.#count) % this.#capacity;
    /** @type {Buffer} */ (this.#buffer).set(frame, index * FRAME_BYTES);
    this.#count += 1;
  }

  #makeRoom() {
    if (this.#count >= this.#max) {
      this.#head = (this.#head + 1) % this.#capacity;
      this.#count -= 1;
      this.#dropped += 1;
    } else if (this.#buffer) {
      const audio = this.#contiguous(this.#buffer);
      this.#capacity = Math.min(this.#capacity * 2, this.#max);
      this.#buffer = Buffer.allocUnsafeSlow(this.#capacity * FRAME_BYTES);
      this.#buffer.set(audio);
      this.#head = 0;
    } else {
      this.#buffer = this.#pool.take();
      this.#capacity = Math.min(this.#pool.frames, this.#max);
    }
  }

  /**
   * Admits all frames since the last call as read at `now`.
   *
   * @param {number} now
   * @returns {{received: number, dropped: number}} frames since the last call, and frames that were dropped
   */
  admit(now) {
    const dropped = this.#dropped;
    const received = this.#lastRemoved + this.#count + dropped - this.#lastAdmitted;
    if (received > 0) {
      this.#lastAdmitted += received;
      this.#marks.push({ newest: this.#lastAdmitted, readAt: now });
    }
    if (dropped > 0) {
      this.#dropped = 0;
      const { span, oldestReadAt, newestReadAt } = this.#remove(dropped);
      const earlier = this.#overflow;
      // An overflow is reported before the next batch is taken, so the later frames directly follow the earlier ones.
      this.#overflow = earlier
        ? { ...earlier, span: { ...earlier.span, frames: earlier.span.frames + dropped }, newestReadAt }
        : { span, oldestReadAt, newestReadAt };
    }
    return { received, dropped };
  }

  /** Number of frames that wait. */
  get waiting() {
    return this.#count;
  }

  /** Takes all waiting frames. At least one must wait, and all must be admitted. */
  take() {
    const buffer = /** @type {Buffer} */ (this.#buffer);
    const audio = this.#contiguous(buffer);
    const taken = this.#remove(this.#count);
    this.#buffer = undefined;
    this.#capacity = this.#head = this.#count = 0;
    return { audio, ...taken };
  }

  /** Takes the record of frames that were dropped since the last call. */
  takeOverflow() {
    const overflow = this.#overflow;
    this.#overflow = undefined;
    return overflow;
  }

  /** @param {Buffer} buffer */
  #contiguous(buffer) {
    const end = this.#head + this.#count;
    const start = buffer.subarray(this.#head * FRAME_BYTES, Math.min(end, this.#capacity) * FRAME_BYTES);
    if (end <= this.#capacity) return start;
    return Buffer.concat([start, buffer.subarray(0, (end - this.#capacity) * FRAME_BYTES)]);
  }

  /**
   * Removes the oldest frames.
   *
   * @param {number} frames at least one, and no more than were admitted
   * @returns {TakenFrames}
   */
  #remove(frames) {
    const span = { oldest: this.#lastRemoved + 1, frames };
    this.#lastRemoved += frames;
    const marks = this.#marks;
    const oldestReadAt = marks[0]?.readAt ?? Number.NaN;
    let removed = marks.findIndex((mark) => mark.newest >= this.#lastRemoved);
    const last = marks[removed];
    if (last?.newest === this.#lastRemoved) removed += 1;
    marks.splice(0, removed);
    return { span, oldestReadAt, newestReadAt: last?.readAt ?? Number.NaN };
  }
}
