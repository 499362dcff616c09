/** Runs the ticks of all sessions with a single timer, many ticks per wake-up. */

/** Shortest time between two rounds, in milliseconds, so that under load one wake-up serves many sessions. */
const ROUND_MS = 5;

/** An object that the clock visits. It must not be in the clock twice. */
export interface Visited {
  /** Does the work that is due. Returns the time of the next visit, or `undefined` for none. */
  visit(now: number): number | undefined;
}

interface Entry {
  due: number;
  visited: Visited;
}

export class Clock {
  /** A binary min-heap by due time: no entry is due before its parent. */
  readonly #heap: Entry[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the timer fires; infinite if none is set. */
  #wake = Number.POSITIVE_INFINITY;
  /** When the last round started. */
  #round = Number.NEGATIVE_INFINITY;

  /** Schedules a visit of `visited` at `due`. */
  add(due: number, visited: Visited): void {
    this.#push({ due, visited });
    this.#arm();
  }

  #arm(): void {
    const first = this.#heap[0];
    if (!first) return;
    const wake = Math.max(first.due, this.#round + ROUND_MS);
    if (wake >= this.#wake) return;
    clearTimeout(this.#timer);
    this.#wake = wake;
    this.#timer = setTimeout(() => this.#run(), Math.max(1, Math.ceil(wake - performance.now())));
  }

  #run(): void {
    this.#wake = Number.POSITIVE_INFINITY;
    const now = performance.now();
    this.#round = now;
    for (let first = this.#heap[0]; first && first.due <= now; first = this.#heap[0]) {
      this.#pop();
      const next = first.visited.visit(now);
      if (next !== undefined) this.#push({ due: next, visited: first.visited });
    }
    this.#arm();
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let index = heap.length;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = heap[parentIndex];
      if (!parent || parent.due <= entry.due) break;
      heap[index] = parent;
      index = parentIndex;
    }
    heap[index] = entry;
  }

  /** Removes the first entry. */
  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    const size = heap.length;
    if (!last || size === 0) return;
    let index = 0;
    for (let childIndex = 1; childIndex < size; childIndex = 2 * index + 1) {
      const right = heap[childIndex + 1];
      let child = heap[childIndex] as Entry;
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
