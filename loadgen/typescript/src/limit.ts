// `connection-limit`: doubles the connections until a probe fails, then bisects between it and the last that held.

const FIRST_PROBE = 1000;
/** Width of the bracket at which the search ends, in connections. */
const WIDTH = 1000;
/** Probes between the bounds are multiples of this. */
const STEP = 500;

/** The result of a search. */
export interface Limit {
  /** The most connections of a probe that held; 0 when no probe did. */
  held: number;
  /** The fewest connections of a probe that failed; null when none failed. */
  failed: number | null;
}

/** Searches up to `maxConnections` connections; `probe` returns whether that many connections opened, lasted and answered. */
export async function searchLimit(
  maxConnections: number,
  probe: (connections: number) => Promise<boolean>,
): Promise<Limit> {
  let held = 0;
  let failed: number | null = null;
  for (let next = Math.min(FIRST_PROBE, maxConnections); failed === null; next = Math.min(next * 2, maxConnections)) {
    if (await probe(next)) held = next;
    else failed = next;
    if (held === maxConnections) break;
  }
  while (failed !== null && failed - held > WIDTH) {
    const middle = Math.floor((held + failed) / 2 / STEP) * STEP;
    if (await probe(middle)) held = middle;
    else failed = middle;
  }
  return { held, failed };
}
