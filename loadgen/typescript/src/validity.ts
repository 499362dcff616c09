// Whether a trial may be used at all: the rules of docs/METHODOLOGY.md, "Validity", as far as a run by hand has them.
// Each reason says what was seen against what is allowed. Pure.

import { balance, holds } from "./books.ts";
import { endedEarly, type Measured } from "./figures.ts";
import type { Merged } from "./merge.ts";
import type { Books, Figures, Reading, Reason, Validity } from "./schemas.ts";
import { THRESHOLDS } from "./thresholds.ts";

/** Largest drift between wall clock and monotonic clock, in ns: beyond slewing and the millisecond of `Date.now`. */
const CLOCK_STEP_NS = 10_000_000;
const READING_SHARE = 0.05;
const READING_FLOOR_NS = 100_000_000;
const NS_PER_MS = 1e6;

/** Judges a trial by every rule. */
export function validity(
  measured: Measured,
  merged: Merged,
  books: Books,
  figures: Figures,
  workers: number,
): Validity {
  const open = measured.load.model === "open";
  const reasons = [
    unaccounted(books),
    workersMissing(measured, workers),
    startSkew(measured),
    ...(open ? [generatorLate(merged), generatorCpu(figures), sendRate(merged)] : []),
    serviceRestarted(measured),
    clockStep(measured),
    readingLate(measured, merged),
    windowShort(merged),
  ].filter((reason) => reason !== undefined);
  return reasons.length === 0 ? { state: "valid" } : { state: "invalid", reasons };
}

function unaccounted(books: Books): Reason | undefined {
  if (balance(books)) return undefined;
  const words = books.equations
    .filter((equation) => !holds(equation))
    .map(({ name, left, right, terms }) => {
      return `${name}: ${left} against ${right} (${terms.map(([term, count]) => `${term} ${count}`).join(", ")})`;
    });
  const check = books.connections;
  if (check && check.mismatched > 0) {
    words.push(`${check.mismatched} of ${check.compared} connections differ, for example ${check.examples[0]}`);
  }
  return { kind: "unaccounted", detail: words.join("; ") };
}

function workersMissing({ results }: Measured, workers: number): Reason | undefined {
  if (results.length >= workers) return undefined;
  return { kind: "workers_missing", detail: `${results.length} of ${workers} workers delivered a result` };
}

/** Spread of the starts, the planned moment included: the service's readings border the window by it. */
function startSkew({ results }: Measured): Reason | undefined {
  const skews = [0, ...results.map((result) => result.evidence.start_skew_ns)];
  const apartMs = (Math.max(...skews) - Math.min(...skews)) / NS_PER_MS;
  const allowed = THRESHOLDS.start_skew_ms;
  if (apartMs <= allowed) return undefined;
  return { kind: "start_skew", detail: `workers started ${apartMs.toFixed(1)} ms apart, allowed ${allowed} ms` };
}

function generatorLate(merged: Merged): Reason | undefined {
  const delay = merged.histograms.get("delay_ns");
  if (delay === undefined || delay.count === 0) {
    return merged.window.sent > 0 ? { kind: "generator_late", detail: "no worker recorded its delay" } : undefined;
  }
  // Judged on few samples too: a wrong acquittal is worse than a rank that is off by one.
  const seen = (delay.percentile(99) ?? delay.percentile(100) ?? 0) / NS_PER_MS;
  const allowed = THRESHOLDS.delay_p99_ms;
  if (seen <= allowed) return undefined;
  const detail = `the generator was late: p99 of delay ${seen.toFixed(1)} ms, allowed ${allowed} ms`;
  return { kind: "generator_late", detail };
}

function generatorCpu({ worker_cpu_share: share }: Figures): Reason | undefined {
  if (typeof share !== "number" || share <= THRESHOLDS.worker_cpu_share) return undefined;
  const detail = `the workers used ${(share * 100).toFixed(1)} % of the CPU that they could have had, allowed 90 %`;
  return { kind: "generator_cpu", detail };
}

function sendRate({ window }: Merged): Reason | undefined {
  if (window.sent >= window.due * THRESHOLDS.send_share) return undefined;
  return {
    kind: "send_rate",
    detail: `${window.sent} of ${window.due} messages that were due were sent, allowed 99.5 %`,
  };
}

function serviceRestarted({ readings }: Measured): Reason | undefined {
  const all = [readings.before, readings.window_start, readings.window_end, readings.after];
  const present = all.filter((reading): reading is Reading => !!reading);
  for (const [place, later] of present.slice(1).entries()) {
    const earlier = present[place];
    if (earlier && earlier.pid !== later.pid) {
      return { kind: "service_restarted", detail: `process ${earlier.pid} became process ${later.pid}` };
    }
    if (earlier && later.stats.uptime_seconds < earlier.stats.uptime_seconds) {
      return { kind: "service_restarted", detail: `its uptime fell to ${later.stats.uptime_seconds.toFixed(1)} s` };
    }
  }
  return undefined;
}

function clockStep({ results }: Measured): Reason | undefined {
  const worst = results.find((result) => Math.abs(result.evidence.clock_step_ns) > CLOCK_STEP_NS);
  if (worst === undefined) return undefined;
  const seen = (worst.evidence.clock_step_ns / NS_PER_MS).toFixed(1);
  return { kind: "clock_step", detail: `the clock of worker ${worst.worker} jumped by ${seen} ms, allowed 10 ms` };
}

function readingLate(measured: Measured, merged: Merged): Reason | undefined {
  const { window_start: start, window_end: end } = measured.readings;
  if (!start || !end || endedEarly(measured, merged)) return undefined;
  const apartNs = Number(end.unix_ns) - Number(start.unix_ns);
  const allowedNs = Math.max(measured.windowNs * READING_SHARE, READING_FLOOR_NS);
  if (Math.abs(apartNs - measured.windowNs) <= allowedNs) return undefined;
  const [apart, window] = [(apartNs / 1e9).toFixed(2), measured.windowNs / 1e9];
  return {
    kind: "reading_late",
    detail: `the service's counters were read ${apart} s apart for a window of ${window} s`,
  };
}

function windowShort(merged: Merged): Reason | undefined {
  if (merged.window.duration_ns > 0) return undefined;
  return { kind: "window_short", detail: "the load ended before the window began; give --warmup 0" };
}
