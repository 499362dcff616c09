/**
 * The audio of a session that waits for the next tick: bytes, sequence numbers, and read times. It is bounded: beyond
 * the limit the oldest frames are dropped.
 */

import { FRAME_BYTES, type Span } from './protocol.ts';

/** Maximum of spare buffers. */
const MAX_SPARE = 256;

/** A pool of buffers with the usual size of a batch, because large buffers are expensive to allocate. */
export class BatchPool {
  readonly #spare: Buffer[] = [];
  /** Capacity of a buffer in frames. */
  readonly frames: number;

  constructor(frames: number) {
    this.frames = frames;
  }

  /** Returns a buffer with undefined content. */
  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.frames * FRAME_BYTES);
  }

  /** Takes back the memory of a batch, or a view of a part of it. The caller must not use it any more. */
  give(audio: Buffer): void {
    if (audio.buffer.byteLength !== this.frames * FRAME_BYTES || this.#spare.length >= MAX_SPARE) return;
    this.#spare.push(Buffer.from(audio.buffer));
  }
}

/** Frames that left the backlog, and when they were read. */
export interface Taken {
  span: Span;
  oldestRead: number;
  newestRead: number;
}

export class Backlog {
  readonly #pool: BatchPool;
  readonly #max: number;
  /** A ring buffer of frames; undefined while nothing waits. */
  #buffer: Buffer | undefined;
  /** Capacity of the ring in frames. */
  #capacity = 0;
  /** Index of the oldest frame in the ring. */
  #head = 0;
  /** Number of frames in the ring. */
  #held = 0;
  /** Number of frames that were appended and dropped again since the last `admit`. */
  #evicted = 0;
  /** Sequence number of the last frame that was taken or dropped. */
  #left = 0;
  /** Sequence number of the last frame that was admitted. */
  #came = 0;
  /** Read times of groups of frames: each of those after the previous mark, up to `newest`. */
  readonly #marks: { newest: number; at: number }[] = [];
  #overflow: Taken | undefined;

  /** Creates a backlog in which at most `max` frames wait. */
  constructor(pool: BatchPool, max: number) {
    this.#pool = pool;
    this.#max = max;
  }

  /** Copies a frame of {@link FRAME_BYTES} into the ring. */
  append(frame: Uint8Array): void {
    if (this.#held === this.#capacity) this.#makeRoom();
    const place = (this.#head + this.#held) % this.#capacity;
    this.#buffer?.set(frame, place * FRAME_BYTES);
    this.#held += 1;
  }

  #makeRoom(): void {
    if (this.#held >= this.#max) {
      this.#head = (this.#head + 1) % this.#capacity;
      this.#held -= 1;
      this.#evicted += 1;
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

  /** Admits all frames since the last call as read at `now`. Returns how many arrived and how many were dropped. */
  admit(now: number): { arrived: number; dropped: number } {
    const dropped = this.#evicted;
    const arrived = this.#left + this.#held + dropped - this.#came;
    if (arrived > 0) {
      this.#came += arrived;
      this.#marks.push({ newest: this.#came, at: now });
    }
    if (dropped > 0) {
      this.#evicted = 0;
      const { span, oldestRead, newestRead } = this.#leave(dropped);
      const earlier = this.#overflow;
      // An overflow is reported before the next batch is taken, so the later frames directly follow the earlier ones.
      this.#overflow = earlier
        ? { ...earlier, span: { ...earlier.span, frames: earlier.span.frames + dropped }, newestRead }
        : { span, oldestRead, newestRead };
    }
    return { arrived, dropped };
  }

  /** Number of frames that wait. */
  get waiting(): number {
    return this.#held;
  }

  /** Takes all waiting frames. At least one must wait, and all must be admitted. */
  take(): Taken & { audio: Buffer } {
    const buffer = this.#buffer as Buffer;
    const audio = this.#contiguous(buffer);
    const taken = this.#leave(this.#held);
    this.#buffer = undefined;
    this.#capacity = this.#head = this.#held = 0;
    return { audio, ...taken };
  }

  /** Takes the record of frames that were dropped since the last call. */
  takeOverflow(): Taken | undefined {
    const overflow = this.#overflow;
    this.#overflow = undefined;
    return overflow;
  }

  #contiguous(buffer: Buffer): Buffer {
    const end = this.#head + this.#held;
    const start = buffer.subarray(this.#head * FRAME_BYTES, Math.min(end, this.#capacity) * FRAME_BYTES);
    if (end <= this.#capacity) return start;
    return Buffer.concat([start, buffer.subarray(0, (end - this.#capacity) * FRAME_BYTES)]);
  }

  /** Removes the oldest frames: at least one, and no more than were admitted. */
  #leave(frames: number): Taken {
    const span = { oldest: this.#left + 1, frames };
    this.#left += frames;
    const marks = this.#marks;
    const oldestRead = marks[0]?.at ?? Number.NaN;
    let passed = marks.findIndex((mark) => mark.newest >= this.#left);
    const last = marks[passed];
    if (last?.newest === this.#left) passed += 1;
    marks.splice(0, passed);
    return { span, oldestRead, newestRead: last?.at ?? Number.NaN };
  }
}
