/** When a session's flush ticks are due, and when its socket is read in between. No I/O; callers pass the time. */

/** Longest time between two reads of a socket, in milliseconds. The contract allows 500 for the reply to a ping. */
const MAX_PAUSE_MS = 450;

/** Ticks at multiples of an interval after a first one. Absolute: no drift, and lateness doesn't accumulate. */
export class Schedule {
  /** When the next tick is due. */
  #due;
  #interval;
  /** Time between two visits; the interval is a multiple of it. */
  #pause;

  /**
   * @param {number} first when the first tick is due
   * @param {number} interval in milliseconds, as all times here
   */
  constructor(first, interval) {
    this.#due = first;
    this.#interval = interval;
    this.#pause = interval / Math.ceil(interval / MAX_PAUSE_MS);
  }

  /**
   * Returns when the next visit is due: at the tick, or a whole number of pauses before it.
   *
   * @param {number} now
   */
  nextVisit(now) {
    const pauses = Math.ceil((this.#due - now) / this.#pause) - 1;
    return pauses > 0 ? this.#due - pauses * this.#pause : this.#due;
  }

  /**
   * Returns the lateness of the tick due at `now`, if one is. The next tick is the first one in the future.
   *
   * @param {number} now
   */
  tick(now) {
    const lateness = now - this.#due;
    if (lateness < 0) return undefined;
    this.#due += this.#interval * (Math.floor(lateness / this.#interval) + 1);
    return lateness;
  }
}
