/** When a session's flush ticks are due, and when its socket is read in between. Pure: the caller tells the time. */

/** Longest time between two reads of a socket, in milliseconds: pings must be answered within 500. */
const LONGEST_PAUSE_MS = 450;

/** Ticks at multiples of an interval after a first one. It doesn't drift, and lateness doesn't add up. */
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
    this.#pause = interval / Math.ceil(interval / LONGEST_PAUSE_MS);
  }

  /**
   * When the session is to be visited next: at the tick, or a whole number of pauses before it.
   *
   * @param {number} now
   */
  visit(now) {
    const pauses = Math.ceil((this.#due - now) / this.#pause) - 1;
    return pauses > 0 ? this.#due - pauses * this.#pause : this.#due;
  }

  /**
   * How late the tick is that is due at `now`; `undefined` if none is. The next is the first multiple in the future.
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
