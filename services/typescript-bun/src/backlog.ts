/**
 * The audio of a session that waits for its tick: bytes, sequence numbers, and when they were read. Bounded: the oldest
 * frames make room for new ones.
 */

import { FRAME_BYTES, type Span } from './protocol.ts';

/** Buffers that are kept for further batches, at most. */
const MAX_SPARE = 256;

/** Buffers of the usual size of a batch, used again and again: large ones are dear to make. */
export class BatchPool {
  readonly #spare: Buffer[] = [];
  /** Frames that a buffer holds. */
  readonly frames: number;

  constructor(frames: number) {
    this.frames = frames;
  }

  /** A buffer with anything in it. */
  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.frames * FRAME_BYTES);
  }

  /** Takes back the memory of a batch, all or a part of it, to which nothing refers any more. */
  give(audio: Buffer): void {
    if (audio.buffer.byteLength !== this.frames * FRAME_BYTES || this.#spare.length >= MAX_SPARE) return;
    this.#spare.push(Buffer.from(audio.buffer));
  }
}

/** Frames that left, and when they had been read. */
export interface Taken {
  span: Span;
  oldestRead: number;
  newestRead: number;
}

export class Backlog {
  readonly #pool: BatchPool;
  readonly #max: number;
  /** A ring of frames; none while nothing waits. */
  #buffer: Buffer | undefined;
  /** Frames that the ring holds. */
  #capacity = 0;
  /** Where in the ring the oldest frame is. */
  #head = 0;
  /** Frames in the ring. */
  #held = 0;
  /** Frames that came and were dropped again since the last `admit`. */
  #evicted = 0;
  /** Sequence number of the last frame that left. */
  #left = 0;
  /** Sequence number of the last frame that was admitted. */
  #came = 0;
  /** Since when frames wait: those up to `newest`, and not those of the mark before. */
  readonly #marks: { newest: number; at: number }[] = [];
  #overflow: Taken | undefined;

  /** At most `max` frames wait. */
  constructor(pool: BatchPool, max: number) {
    this.#pool = pool;
    this.#max = max;
  }

  /** Adds a frame of {@link FRAME_BYTES}, which is copied. */
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

  /** Notes that all frames since the last call were read at `now`; how many came, and were dropped to make room. */
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
      // Frames leave otherwise only once this was reported: the later ones follow right behind.
      this.#overflow = earlier
        ? { ...earlier, span: { ...earlier.span, frames: earlier.span.frames + dropped }, newestRead }
        : { span, oldestRead, newestRead };
    }
    return { arrived, dropped };
  }

  /** Frames that wait. */
  get waiting(): number {
    return this.#held;
  }

  /** Takes all that waits; at least one frame must, and all must be admitted. */
  take(): Taken & { audio: Buffer } {
    const buffer = this.#buffer as Buffer;
    const audio = this.#contiguous(buffer);
    const taken = this.#leave(this.#held);
    this.#buffer = undefined;
    this.#capacity = this.#head = this.#held = 0;
    return { audio, ...taken };
  }

  /** What was dropped since this was last asked. */
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

  /** The oldest frames leave: at least one, and no more than were admitted. */
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
