// Clocks. The monotonic clock is the same for all processes of a machine, so they can agree on a start time.

export const NS_PER_MS = 1e6;
export const NS_PER_SECOND = 1e9;

/** The machine's monotonic clock in nanoseconds. */
export function monotonicNs(): number {
  return Number(process.hrtime.bigint());
}

/** Unix time in nanoseconds: the time at which the process started, plus the monotonic time since then. */
export function unixNs(): number {
  return Math.round((performance.timeOrigin + performance.now()) * NS_PER_MS);
}

/** Unix time in nanoseconds by the wall clock, in steps of 1 ms; a clock step shows here. */
export function wallNs(): number {
  return Date.now() * NS_PER_MS;
}

/** Waits until a time of the monotonic clock: a timer up to the last millisecond, then turns of the event loop. */
export async function until(momentNs: number): Promise<void> {
  for (;;) {
    const remainingMs = (momentNs - monotonicNs()) / NS_PER_MS;
    if (remainingMs <= 0) return;
    await new Promise<void>((resolve) =>
      remainingMs > 2 ? setTimeout(resolve, remainingMs - 1.5) : setImmediate(resolve),
    );
  }
}
