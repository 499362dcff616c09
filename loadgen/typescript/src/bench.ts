// Runs one trial after the other: reads the service, loads it, reads it again, writes all counts, has the trial judged.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Bundle, keep } from "./bundle.ts";
import type { Options } from "./cli.ts";
import { NS_PER_SECOND } from "./clock.ts";
import { judge } from "./judge.ts";
import { allowedCpus, cpuList } from "./machine.ts";
import {
  type ConnectionBook,
  type Reading,
  SCHEMA,
  type ServiceReadings,
  type TrialFile,
  type TrialResult,
  type WorkerResult,
} from "./schemas.ts";
import type { Service } from "./service.ts";
import type { Ladder } from "./suite.ts";
import type { Assignment } from "./trial.ts";
import { WORKLOADS } from "./worker.ts";
import type { WorkerPool } from "./worker_pool.ts";

/** The outcome of a trial, one row of a table; without a result when the trial failed. */
export interface Outcome {
  ladder: Ladder;
  tier: number;
  /** Absent when the trial could not be measured; then `problem` says why. */
  result?: TrialResult;
  problem?: string;
}

/** The reasons why an outcome isn't clean; empty when the trial is valid and nothing failed. */
export function problems(outcome: Outcome): string[] {
  const { result } = outcome;
  if (result === undefined) return [outcome.problem ?? "no result"];
  const reasons =
    result.validity.state === "invalid" ? result.validity.reasons.map((entry) => `${entry.kind}: ${entry.detail}`) : [];
  const counted = (label: string, counts: Record<string, number>) =>
    Object.entries(counts).map(([reason, count]) => `${count} ${label}: ${reason}`);
  reasons.push(...counted("connections failed", result.connections.failed));
  reasons.push(...counted("connections ended early", result.connections.closed_early));
  if (result.witness === "reply" && result.messages.lost > 0)
    reasons.push(`${result.messages.lost} pings without an answer`);
  return reasons;
}

/** What all trials of a run use: options, worker pool, service, judge and bundle. */
export interface Equipment {
  options: Options;
  workerPool: WorkerPool;
  service: Service | null;
  serviceName: string;
  /** Path of the program `ladder`, which judges trials. */
  judge: string;
  bundle: Bundle | null;
  run: string;
}

/** Runs one trial; a failure is returned as an outcome. */
export async function measure(equipment: Equipment, ladder: Ladder, tier: number): Promise<Outcome> {
  const { bundle, serviceName } = equipment;
  const id = { service: serviceName, workload: ladder.test, variant: ladder.variant, tier, process: 1, repeat: 1 };
  const assigned = assignments(equipment, ladder, tier, id);
  const folder = bundle?.folderOf(id) ?? (await mkdtemp(join(tmpdir(), "wse-ts-bench-")));
  try {
    const loaded = await load(equipment, ladder, assigned);
    const { results, readings, connections } = loaded;
    await keep(folder, trialFile(equipment, ladder, assigned, loaded), results, {
      schema: SCHEMA,
      readings,
      connections,
    });
    const result = await judge(equipment.judge, folder);
    await bundle?.finished(ladder, id, result.validity);
    return { ladder, tier, result };
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    await bundle?.fail(ladder, id, problem);
    return { ladder, tier, problem };
  } finally {
    if (bundle === null) await rm(folder, { recursive: true, force: true });
  }
}

interface Loaded {
  results: WorkerResult[];
  readings: ServiceReadings;
  connections: ConnectionBook[] | null;
  openAtStart: number;
  /** Ids of connections that the service has before the trial: they belong to other clients. */
  otherIds: string[];
}

async function load(equipment: Equipment, ladder: Ladder, assigned: Assignment[]): Promise<Loaded> {
  const { workerPool, service, options } = equipment;
  const timeoutNs = options.drain * NS_PER_SECOND;
  const known = (await service?.connections()) ?? [];
  const otherIds = known.map((book) => book.id);
  const first = (await service?.read()) ?? null;
  const before = first && ((await service?.settled(first, 0, timeoutNs)) ?? null);
  let openAtStart = 0;
  let edges: Promise<[Reading, Reading]> | undefined;
  let start: Promise<Reading> | undefined;
  let end: Reading | null = null;
  const results = await workerPool.run(assigned, options.secret, {
    started(startNs, open) {
      openAtStart = open;
      const { warmup_ns, window_ns } = assigned[0] ?? { warmup_ns: 0, window_ns: 0 };
      if (service === null) return;
      start = service.readAt(startNs + warmup_ns);
      if (ladder.fixedWindow) edges = Promise.all([start, service.readAt(startNs + warmup_ns + window_ns)]);
      // The await below reports a failure; until then an unhandled rejection must not end the process.
      start.catch(() => {});
      edges?.catch(() => {});
    },
    async loaded() {
      if (!ladder.fixedWindow && service !== null) end = await service.read();
    },
  });
  const atEdges = edges === undefined ? [(await start) ?? null, end] : await edges;
  const expected = results
    .flatMap((result) => result.books ?? [])
    .reduce((sum, book) => sum + book.sent + book.unnumbered, 0);
  const after = before && ((await service?.settled(before, expected, timeoutNs)) ?? null);
  const connections = (await service?.connections()) ?? null;
  const readings = { before, window_start: atEdges[0] ?? null, window_end: atEdges[1] ?? null, after };
  return { results, readings, connections, openAtStart, otherIds };
}

/** The content of `trial.json`: what the judge needs beside the counts of the workers and the service. */
function trialFile(equipment: Equipment, ladder: Ladder, assigned: Assignment[], loaded: Loaded): TrialFile {
  const { service, options } = equipment;
  const { before, window_start, window_end, after } = loaded.readings;
  const [assignment, result] = [assigned[0], loaded.results[0]];
  const terms = WORKLOADS[ladder.test]?.terms;
  if (assignment === undefined || result === undefined || terms === undefined) {
    throw new Error("no worker delivered a result");
  }
  const workerCpus = options.cpus === undefined ? allowedCpus("self") : cpuList(options.cpus);
  const serviceCpus = service?.cpus() ?? [];
  const shared = workerCpus.some((cpu) => serviceCpus.includes(cpu));
  return {
    schema: SCHEMA,
    run: equipment.run,
    trial: assignment.trial,
    attempt: 1,
    started_at_unix_ns: result.evidence.start_at_unix_ns,
    load: ladder.load(assignment.trial.tier),
    message: ladder.message,
    objectives: [],
    // Empty: the judge's defaults, which are those of METHODOLOGY.
    thresholds: {},
    terms,
    keeping: service === null ? "none" : loaded.connections === null ? "totals" : "connections",
    workers: assigned.length,
    window_ns: assignment.window_ns,
    open_at_start: loaded.openAtStart,
    rss_peak_bytes: Math.max(0, ...[before, window_start, window_end, after].map((entry) => entry?.rss_bytes ?? 0)),
    rss_at_rest_bytes: before ? (service?.atRest(before) ?? null) : null,
    cpus: { workers: workerCpus.length, shared_with_service: shared },
    others: loaded.otherIds,
    reproduce: reproduce(ladder, assignment.trial.tier),
  };
}

/** The assignment of each worker; connections and the rate are divided among them. */
export function assignments(
  { options, run }: Pick<Equipment, "options" | "run">,
  ladder: Ladder,
  tier: number,
  trial: Assignment["trial"],
): Assignment[] {
  const workers = Math.min(options.processes, tier);
  const firstConnection = (worker: number) => Math.floor((tier * worker) / workers);
  return Array.from({ length: workers }, (_, worker) => {
    const connections = firstConnection(worker + 1) - firstConnection(worker);
    const load = ladder.load(tier);
    const share =
      load.model === "open" ? { ...load, rate_per_second: (load.rate_per_second * connections) / tier } : load;
    return {
      run,
      trial,
      attempt: 1,
      worker,
      workers,
      address: `${options.host}:${options.port}`,
      connections,
      first_connection: firstConnection(worker),
      seed: 1,
      load: share,
      message: ladder.message,
      warmup_ns: ladder.warmupSeconds * NS_PER_SECOND,
      window_ns: ladder.windowSeconds * NS_PER_SECOND,
      drain_ns: options.drain * NS_PER_SECOND,
    };
  });
}

/** The command line that runs only this tier. */
function reproduce(ladder: Ladder, tier: number): string {
  const keptFlags: string[] = [];
  const flags = process.argv.slice(2);
  for (let at = 0; at < flags.length; at++) {
    const flag = flags[at] ?? "";
    if (["--tiers", "--test", "--results"].includes(flag)) at++;
    else if (!/^--(tiers|test|results)=/.test(flag)) keptFlags.push(flag);
  }
  return ["npx tsx src/main.ts", ...keptFlags, "--test", ladder.test, "--tiers", tier].join(" ");
}

/** Whether all connections of a probe opened, lasted and answered; other problems are due to the generator. */
export function held({ tier, result }: Outcome): boolean {
  if (result === undefined) return false;
  const { connections, messages } = result;
  const lasted = Object.keys(connections.closed_early).length === 0 && messages.delivered === messages.due;
  return connections.open === tier && lasted;
}

/** Whether an outcome has no problems. */
export function isClean(outcome: Outcome): boolean {
  return problems(outcome).length === 0;
}
