/**
 * Visits sessions when they are due, many per wake-up, with a single timer.
 *
 * A round has two halves. In the first, all sessions that are due resume their sockets; the event loop then reads
 * them. In the second, in the loop's check phase, the sessions handle what was read.
 */

/** Shortest time between two rounds, in milliseconds, so that under load one wake-up serves many sessions. */
const ROUND_MS = 5;

/**
 * An object that the clock visits. It must not be in the clock twice.
 *
 * @typedef {object} Visited
 * @property {() => void} open resumes the socket
 * @property {(now: number) => number | undefined} visit handles what was read; returns when the next visit is due, if any
 */

/** @typedef {{due: number, visited: Visited}} Entry */

export class Clock {
  /** A binary min-heap by due time: no entry is due before its parent. @type {Entry[]} */
  #heap = [];
  /** @type {NodeJS.Timeout | undefined} */
  #timer;
  /** When the timer fires; infinite if none is set. */
  #wake = Number.POSITIVE_INFINITY;
  /** When the last round started. */
  #round = Number.NEGATIVE_INFINITY;
  #now;

  /** @param {() => number} now the time in milliseconds, which never goes back */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Schedules a visit of `visited` at `due`.
   *
   * @param {number} due
   * @param {Visited} visited
   */
  add(due, visited) {
    this.#push({ due, visited });
    this.#arm();
  }

  #arm() {
    const first = this.#heap[0];
    if (!first) return;
    const wake = Math.max(first.due, this.#round + ROUND_MS);
    if (wake >= this.#wake) return;
    clearTimeout(this.#timer);
    this.#wake = wake;
    this.#timer = setTimeout(() => this.#begin(), Math.max(1, Math.ceil(wake - this.#now())));
  }

  #begin() {
    this.#wake = Number.POSITIVE_INFINITY;
    this.#round = this.#now();
    /** @type {Visited[]} */
    const due = [];
    for (let first = this.#heap[0]; first && first.due <= this.#round; first = this.#heap[0]) {
      this.#pop();
      first.visited.open();
      due.push(first.visited);
    }
    setImmediate(() => this.#end(due));
  }

  /** @param {Visited[]} due */
  #end(due) {
    const now = this.#now();
    for (const visited of due) {
      const next = visited.visit(now);
      if (next !== undefined) this.#push({ due: next, visited });
    }
    this.#arm();
  }

  /** @param {Entry} entry */
  #push(entry) {
    const heap = this.#heap;
    let index = heap.length;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = /** @type {Entry} */ (heap[parentIndex]);
      if (parent.due <= entry.due) break;
      heap[index] = parent;
      index = parentIndex;
    }
    heap[index] = entry;
  }

  /** Removes the first entry. */
  #pop() {
    const heap = this.#heap;
    const last = /** @type {Entry} */ (heap.pop());
    const size = heap.length;
    if (size === 0) return;
    let index = 0;
    for (let childIndex = 1; childIndex < size; childIndex = 2 * index + 1) {
      const right = heap[childIndex + 1];
      let child = /** @type {Entry} */ (heap[childIndex]);
      if (right && right.due < child.due) {
        child = right;
        childIndex += 1;
      }
      if (last.due <= child.due) break;
      heap[index] = child;
      index = childIndex;
    }
    heap[index] = last;
  }
}
