/** When a session's flush ticks are due. Pure: the caller tells the time, in milliseconds. */

/** Ticks at multiples of an interval after a first one. It doesn't drift, and lateness doesn't add up. */
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

  /** How late the tick is that is due at `now`; `undefined` if none is. The next is the first multiple in the future. */
  tick(now: number): number | undefined {
    const lateness = now - this.#due;
    if (lateness < 0) return undefined;
    this.#due += this.#interval * (Math.floor(lateness / this.#interval) + 1);
    return lateness;
  }
}
