// The clocks. The monotonic one is the machine's own, so processes of one machine can agree on a moment.

export const NS_PER_MS = 1e6;
export const NS_PER_SECOND = 1e9;

/** Nanoseconds of the machine's monotonic clock. */
export function monotonicNs(): number {
  return Number(process.hrtime.bigint());
}

/** Unix time in nanoseconds, as it was when the process started plus what the monotonic clock counted since. */
export function unixNs(): number {
  return Math.round((performance.timeOrigin + performance.now()) * NS_PER_MS);
}

/** Unix time in nanoseconds by the wall clock, to the millisecond that Node.js knows: a step shows here. */
export function wallNs(): number {
  return Date.now() * NS_PER_MS;
}

/** Waits until a moment of the monotonic clock: a timer up to its last millisecond, then turns of the event loop. */
export async function until(momentNs: number): Promise<void> {
  for (;;) {
    const leftMs = (momentNs - monotonicNs()) / NS_PER_MS;
    if (leftMs <= 0) return;
    await new Promise<void>((resolve) => (leftMs > 2 ? setTimeout(resolve, leftMs - 1.5) : setImmediate(resolve)));
  }
}
