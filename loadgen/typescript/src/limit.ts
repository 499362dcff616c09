// `connection-limit`: double the connections until some fail, then halve the distance between what held and what didn't.

const FIRST_PROBE = 1000;
/** The bracket's width at which the search ends, in connections. */
const WIDTH = 1000;
/** Probes between the bounds are multiples of this. */
const STEP = 500;

/** What a search found. */
export interface Limit {
  /** The most connections that all opened, lasted and answered; 0 when not even the first probe did. */
  held: number;
  /** The fewest that didn't; nothing when nothing that could be offered failed. */
  failed: number | null;
}

/** Searches up to `most`; `probe` says whether so many connections held. */
export async function searchLimit(most: number, probe: (connections: number) => Promise<boolean>): Promise<Limit> {
  let held = 0;
  let failed: number | null = null;
  for (let next = Math.min(FIRST_PROBE, most); failed === null; next = Math.min(next * 2, most)) {
    if (await probe(next)) held = next;
    else failed = next;
    if (held === most) break;
  }
  while (failed !== null && failed - held > WIDTH) {
    const middle = Math.floor((held + failed) / 2 / STEP) * STEP;
    if (await probe(middle)) held = middle;
    else failed = middle;
  }
  return { held, failed };
}
