// One worker process runs one trial: opens connections, waits for the start, loads, drains, closes, reports.

import { monotonicNs, unixNs, until, wallNs } from "./clock.ts";
import { allowedCpus, environment, ownCpuNs, peakRssBytes, seconds } from "./machine.ts";
import { quota } from "./quota.ts";
import { SCHEMA, type WorkerEvidence, type WorkerResult } from "./schemas.ts";
import { token } from "./token.ts";
import type { Assignment } from "./trial.ts";
import { Trial, type Workload } from "./trial.ts";
import { flood } from "./workloads/flood.ts";
import { hold } from "./workloads/hold.ts";
import { pings } from "./workloads/pings.ts";
import { storm } from "./workloads/storm.ts";

/** Name and version of this program in results. */
export const PROGRAM = "wse-ts-bench 0.1.0";

/** The workloads, keyed by the names of plans and flags, in the order of the published suite. */
export const WORKLOADS: Record<string, Workload> = {
  "connection-storm": storm,
  "ping-latency": pings,
  throughput: flood,
  "size-matrix": flood,
  "format-comparison": flood,
  "sustained-hold": hold,
  "connection-limit": hold,
};

/** The worker's side of the barrier with its parent. */
export interface Barrier {
  /** Reports the number of open connections; resolves with the start in nanoseconds of the monotonic clock. */
  ready(open: number): Promise<number>;
  /** Reports the end of the load; resolves when the parent has read the service while the connections are open. */
  loaded(): Promise<void>;
}

/** Runs an assignment and returns its result. */
export async function runAssignment(assignment: Assignment, secret: string, barrier: Barrier): Promise<WorkerResult> {
  const workload = WORKLOADS[assignment.trial.workload];
  if (workload === undefined) throw new Error(`there is no workload "${assignment.trial.workload}"`);
  const before = { cpuNs: ownCpuNs(), wallNs: wallNs(), monotonicNs: monotonicNs() };
  const trial = new Trial(assignment, token(secret, Math.floor(Date.now() / 1000)));
  if (!workload.terms.opens_in_window) await trial.openAll();
  const startNs = await barrier.ready(trial.counts.open);
  await until(startNs);
  const skewNs = monotonicNs() - startNs;
  const startedUnixNs = unixNs() - skewNs;
  trial.begin(startNs);
  await workload.run(trial);
  await barrier.loaded();
  const hasNodelay = trial.connections.length > 0;
  await Promise.all(trial.connections.map((connection) => connection.close()));
  const evidence: WorkerEvidence = {
    program: PROGRAM,
    start_at_unix_ns: startedUnixNs,
    start_skew_ns: Math.round(skewNs),
    // All processes of a run share one machine and its monotonic clock.
    clock_offset_ns: 0,
    clock_uncertainty_ns: 0,
    clock_step_ns: Math.round(wallNs() - before.wallNs - (monotonicNs() - before.monotonicNs)),
    // One thread runs all JavaScript of a process.
    cpu_limit: Math.min(1, allowedCpus("self").length || 1, quota() ?? 1),
    cpu_seconds: seconds(ownCpuNs() - before.cpuNs),
    throttled_periods: null,
    periods: null,
    throttling: "not_measured",
    rss_bytes: peakRssBytes(),
    nodelay: hasNodelay,
    congestion_control: environment().congestion_control,
  };
  return result(trial, workload, evidence);
}

function result(trial: Trial, workload: Workload, evidence: WorkerEvidence): WorkerResult {
  const { assignment, connections, recorder } = trial;
  const histograms = recorder.finish();
  const sum = (counter: (connection: (typeof connections)[number]) => number) =>
    connections.reduce((total, connection) => total + counter(connection), 0);
  const unsent = sum((connection) => connection.unsent);
  const due = trial.offered();
  const countsReplies = workload.terms.witness === "reply";
  return {
    schema: SCHEMA,
    run: assignment.run,
    trial: assignment.trial,
    attempt: assignment.attempt,
    worker: assignment.worker,
    witness: workload.terms.witness,
    connections: trial.counts,
    messages: {
      due,
      sent: due - unsent,
      delivered: countsReplies ? trial.replies : 0,
      late: 0,
      wrong: 0,
      dropped: {},
      lost: countsReplies ? due - unsent - trial.replies : 0,
      unsent,
      duplicates: trial.duplicates,
      reorders: 0,
      bytes_sent: sum((connection) => connection.bytesSent),
      bytes_received: sum((connection) => connection.bytesReceived),
    },
    window: window(trial),
    histograms,
    intervals: recorder.intervals,
    books: connections.map((connection) => connection.book(workload.numbered)),
    evidence,
    environment: environment(),
  };
}

/** The counts between the two marks. */
function window(trial: Trial): WorkerResult["window"] {
  const [start, end] = trial.marks;
  if (start === undefined || end === undefined) throw new Error("the window's edges were not marked");
  return {
    duration_ns: Math.round(end.atNs - start.atNs),
    due: end.due - start.due,
    sent: end.sent - start.sent,
    replies: end.replies - start.replies,
    answered: end.replies - start.replies,
    writes: end.writes - start.writes,
    cpu_ns: Math.round(end.cpuNs - start.cpuNs),
  };
}
