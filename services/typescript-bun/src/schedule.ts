/** When a session's flush ticks are due. No I/O; callers pass the time in milliseconds. */

/** Ticks at multiples of an interval after a first one. Absolute: no drift, and lateness doesn't accumulate. */
export class Schedule {
  #due: number;
  readonly #interval: number;

  constructor(first: number, interval: number) {
    this.#due = first;
    this.#interval = interval;
  }

  /** When the next tick is due. */
  get due(): number {
    return this.#due;
  }

  /** Returns the lateness of the tick due at `now`, if one is. The next tick is the first one in the future. */
  tick(now: number): number | undefined {
    const lateness = now - this.#due;
    if (lateness < 0) return undefined;
    this.#due += this.#interval * (Math.floor(lateness / this.#interval) + 1);
    return lateness;
  }
}
