// Rates and costs of the window. Pure. A rate comes from the receiving side's counters; what makes no sense is left out.

import { between } from "./books.ts";
import { seconds } from "./machine.ts";
import { type Merged, total } from "./merge.ts";
import type {
  BoundBy,
  Figures,
  Load,
  MessageCounts,
  Reading,
  ServiceReadings,
  Witness,
  WorkerResult,
} from "./schemas.ts";
import { THRESHOLDS } from "./thresholds.ts";

/** A load that ended before this share of the planned window ended by itself: its own window counts. */
const ENDED_EARLY = 0.95;
const MESSAGES_PER_MILLION = 1e6;

/** Figures, with gaps. */
type Some = Partial<Record<keyof Figures, number | undefined>>;

/** Everything that a trial left, before it is judged. */
export interface Measured {
  load: Load;
  /** Length of the window as it was asked for, in nanoseconds. */
  windowNs: number;
  /** Connections that were open when the load started; 0 where they are opened in the window. */
  openAtStart: number;
  results: WorkerResult[];
  readings: ServiceReadings;
  /** CPUs on which workers may run, and those on which the service may; empty where nobody knows. */
  workerCpus: number[];
  serviceCpus: number[];
}

/** All figures of a trial. */
export function figures(measured: Measured, merged: Merged, messages: MessageCounts, witness: Witness): Figures {
  const { window, connections } = merged;
  const duration = seconds(window.duration_ns);
  const all = connections.attempted + messages.due;
  const bad = total(connections.failed) + total(messages.dropped) + messages.wrong + messages.lost + messages.unsent;
  const sent = window.sent > 0;
  return drop({
    window_seconds: duration,
    worker_cpu_seconds: seconds(window.cpu_ns),
    failed_share: ratio(bad, all),
    written_per_second: sent ? ratio(window.sent, duration) : undefined,
    messages_per_write: sent ? ratio(window.sent, window.writes) : undefined,
    worker_cpu_seconds_per_million: sent
      ? ratio(seconds(window.cpu_ns) * MESSAGES_PER_MILLION, window.sent)
      : undefined,
    due_per_second: measured.load.model === "open" ? ratio(window.due, duration) : undefined,
    accepted_per_second: measured.openAtStart === 0 ? ratio(connections.open, duration) : undefined,
    delivered_per_second: witness === "reply" && sent ? ratio(window.answered ?? 0, duration) : undefined,
    replies_per_second: witness === "reply" && sent ? ratio(window.replies, duration) : undefined,
    ...shares(measured, merged),
    ...ofService(measured, merged, witness),
    ...memory(measured, connections.open),
  });
}

/** What bound a closed load; nothing for open ones, and where a side's CPU isn't known. */
export function boundBy(load: Load, figures: Figures): BoundBy | null {
  const { service_cpu_share: service, worker_cpu_share: generator } = figures;
  if (load.model === "open" || typeof service !== "number" || typeof generator !== "number") return null;
  const [ofService, ofGenerator] = [service >= THRESHOLDS.bound_share, generator >= THRESHOLDS.bound_share];
  if (ofService && ofGenerator) return "both";
  return ofService ? "service" : ofGenerator ? "generator" : "neither";
}

/** Whether the load ended by itself (all connections open, all messages answered) and not with the window. */
export function endedEarly(measured: Measured, merged: Merged): boolean {
  return merged.window.duration_ns < measured.windowNs * ENDED_EARLY;
}

/**
 * Shares of the CPU that each side could have had.
 *
 * A side that shares CPUs with the other could have had what the other left. And a worker can't use more than one, so
 * the busiest of those that had a CPU each is what counts, and of those that had less than one each all together.
 */
function shares(measured: Measured, merged: Merged): Some {
  const { results, workerCpus, serviceCpus } = measured;
  const edges = serviceEdges(measured, merged);
  const shared = workerCpus.filter((cpu) => serviceCpus.includes(cpu)).length > 0;
  const duration = seconds(merged.window.duration_ns);
  const service = edges?.cpuSeconds === undefined ? undefined : edges.cpuSeconds / edges.duration;
  const workers = seconds(merged.window.cpu_ns) / duration;
  const left = (cpus: number, other: number | undefined) => (shared ? cpus - (other ?? 0) : cpus);
  const room = left(workerCpus.length, service);
  const each = Math.min(1, room / Math.max(1, results.length));
  const busiest = Math.max(0, ...results.map((result) => ratio(result.window.cpu_ns, result.window.duration_ns) ?? 0));
  const serviceRoom = left(serviceCpus.length, workers);
  return {
    worker_cpu_share: each > 0 ? capped(each < 1 ? workers / room : busiest) : undefined,
    service_cpu_share: service === undefined || serviceRoom <= 0 ? undefined : capped(service / serviceRoom),
  };
}

/** More than all of it is a matter of two clocks. */
function capped(share: number): number {
  return Math.min(1, share);
}

interface Edges {
  start: Reading;
  end: Reading;
  /** Seconds over which its counters grew. */
  duration: number;
  /** Of the service; absent where nobody knows it. */
  cpuSeconds: number | undefined;
}

/** What the readings at the window's edges tell; no CPU where the service runs elsewhere. */
function serviceEdges(measured: Measured, merged: Merged): Edges | undefined {
  const { window_start: start, window_end: end } = measured.readings;
  if (!start || !end) return undefined;
  const apart = seconds(Number(end.unix_ns) - Number(start.unix_ns));
  const duration = endedEarly(measured, merged) ? seconds(merged.window.duration_ns) : apart;
  const known = typeof start.cpu_ns === "number" && typeof end.cpu_ns === "number";
  const used = known ? seconds((end.cpu_ns ?? 0) - (start.cpu_ns ?? 0)) : undefined;
  return { start, end, duration, cpuSeconds: used };
}

function ofService(measured: Measured, merged: Merged, witness: Witness): Some {
  const edges = serviceEdges(measured, merged);
  if (edges === undefined) return {};
  const { cpuSeconds } = edges;
  const cpu = cpuSeconds === undefined ? {} : { service_cpu_seconds: cpuSeconds };
  if (merged.window.sent === 0) return cpu;
  const delta = between(edges.start.stats, edges.end.stats);
  const delivered = witness === "application" ? delta.application?.delivered : undefined;
  const arrived = (witness === "reply" ? merged.window.answered : delivered) || delta.received;
  return {
    ...cpu,
    received_per_second: delta.received > 0 ? ratio(delta.received, edges.duration) : undefined,
    ...(delivered === undefined ? {} : { delivered_per_second: ratio(delivered, edges.duration) }),
    dropped_per_second: witness === "reply" ? undefined : ratio(total(delta.dropped), edges.duration),
    service_cpu_seconds_per_million:
      cpuSeconds === undefined ? undefined : ratio(cpuSeconds * MESSAGES_PER_MILLION, arrived),
  };
}

/** Memory at a reading at which the tier's connections were open, else the highest value seen. */
function memory(measured: Measured, open: number): Some {
  const { before, window_start, window_end, after } = measured.readings;
  const held = measured.openAtStart || open;
  const present = [before, window_start, window_end, after].filter((reading) => !!reading);
  const withAll = [window_start, window_end].find((reading) => reading && reading.stats.connections.open >= held);
  const rss = withAll?.rss_bytes ?? Math.max(0, ...present.map((reading) => reading.rss_bytes ?? 0));
  if (typeof before?.rss_bytes !== "number" || rss === 0 || held === 0) return {};
  return { service_rss_bytes: rss, service_bytes_per_connection: (rss - before.rss_bytes) / held };
}

function ratio(count: number, by: number): number | undefined {
  return by > 0 ? count / by : undefined;
}

/** Without the figures that there are none of. */
function drop(figures: Some): Figures {
  return Object.fromEntries(Object.entries(figures).filter(([, value]) => value !== undefined)) as unknown as Figures;
}
