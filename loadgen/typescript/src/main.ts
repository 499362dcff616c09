// wse-ts-bench: measures a WSE service from Node.js clients that use npm `ws`.
//
//   cli.ts → suite.ts (the loads) → worker_pool.ts (worker processes) → worker.ts, trial.ts, workloads/ (one trial)
//          → service.ts (the service's counters) → bundle.ts (both sides' files) → judge.ts (`ladder judge`) → print.ts

import { createRequire } from "node:module";
import { type Equipment, held, isClean, measure, type Outcome } from "./bench.ts";
import { Bundle, folderName } from "./bundle.ts";
import { type Options, parse } from "./cli.ts";
import { connect } from "./connection.ts";
import { findLadder } from "./judge.ts";
import { searchLimit } from "./limit.ts";
import { allowedCpus } from "./machine.ts";
import { mostConnections, remarks } from "./preflight.ts";
import { json, tables } from "./print.ts";
import { Service } from "./service.ts";
import { chosen, type Ladder, ladders } from "./suite.ts";
import { token } from "./token.ts";
import { serve, WorkerPool } from "./worker_pool.ts";

async function main(): Promise<number> {
  const options = parse(process.argv.slice(2));
  const tests = orUsageError(() => chosen(options.test));
  const maxConnections = mostConnections(options.processes, options.maxConnections);
  const judge = findLadder();
  for (const remark of remarks(Math.max(0, ...(options.tiers ?? [])), options.processes)) note(remark);
  await checkConnectivity(options);
  const service = await findService(options);
  const serviceName = folderName(options.service ?? (await service?.read())?.stats.service ?? "unknown");
  const run = `ts-bench-${new Date()
    .toISOString()
    .replace(/\.\d+Z$/, "")
    .replaceAll(/[-:]/g, "")
    .replace("T", "-")}`;
  const versions = await programs(service, serviceName);
  const cpuRoles = {
    service: (service?.cpus() ?? []).join(","),
    worker: options.cpus ?? allowedCpus("self").join(","),
  };
  const description = { id: run, service: serviceName, options, versions, cpuRoles };
  const bundle = options.results === undefined ? null : new Bundle(options.results, description);
  const workerPool = await WorkerPool.start(options.processes, options.cpus);
  const equipment: Equipment = { options, workerPool, service, serviceName, judge, bundle, run };
  try {
    const all = [];
    for (const ladder of tests.flatMap((test) => ladders(test, options, maxConnections))) {
      const outcomes = await climb(equipment, ladder, maxConnections);
      all.push({ ladder, outcomes });
      if (options.output !== "json") console.log(tables(ladder, outcomes, options.output === "markdown"));
    }
    await bundle?.finish();
    if (options.output === "json") console.log(json(all));
    if (bundle !== null) note(`the bundle is ${bundle.folder}; its report: ./justw analyze-results ${bundle.folder}`);
    return all.every(({ ladder, outcomes }) => clean(ladder, outcomes)) ? 0 : 1;
  } finally {
    workerPool.stop();
  }
}

async function climb(equipment: Equipment, ladder: Ladder, maxConnections: number): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const trial = async (tier: number) => {
    if (process.stderr.isTTY) note(`${ladder.test} ${ladder.variant} ${tier}`);
    const outcome = await measure(equipment, ladder, tier);
    outcomes.push(outcome);
    return held(outcome);
  };
  if (ladder.test === "connection-limit") {
    const { held: largest, failed } = await searchLimit(maxConnections, trial);
    const end = failed === null ? "nothing that could be offered failed" : `${failed} did not`;
    note(`connection-limit: ${failed === null ? "≥ " : ""}${largest} connections held, ${end}`);
  } else {
    for (const tier of ladder.tiers) await trial(tier);
  }
  return outcomes;
}

/** Whether a ladder succeeded. The search for the limit expects probes to fail; other tests don't. */
function clean(ladder: Ladder, outcomes: Outcome[]): boolean {
  return ladder.test === "connection-limit" ? outcomes.some(held) : outcomes.every(isClean);
}

async function checkConnectivity(options: Options): Promise<void> {
  const target = {
    address: `${options.host}:${options.port}`,
    query: "compression=false&protocol_version=1",
    token: token(options.secret, Math.floor(Date.now() / 1000)),
  };
  const ignore = { message: () => {}, closed: () => {} };
  try {
    await (await connect(target, 0, undefined, ignore)).close();
  } catch (error) {
    throw new Error(
      `the service at ${target.address} refuses connections: ${messageOf(error)}; is it started, and is WSE_BENCH_SECRET its own?`,
    );
  }
}

/** Finds the service's metrics port. Without it there is no witness, so sent messages give no throughput. */
async function findService(options: Options): Promise<Service | null> {
  try {
    return await Service.find(options.statsUrl);
  } catch (error) {
    note(`${messageOf(error)} Without its counters nothing says what arrived, and the books can't be balanced.`);
    return null;
  }
}

async function programs(service: Service | null, name: string): Promise<Record<string, string>> {
  const { version } = createRequire(import.meta.url)("ws/package.json") as { version: string };
  const stats = (await service?.read())?.stats;
  return { "wse-ts-bench": "0.1.0", node: process.version, ws: version, ...(stats ? { [name]: stats.version } : {}) };
}

function orUsageError<T>(action: () => T): T {
  try {
    return action();
  } catch (error) {
    console.error(`error: ${messageOf(error)}`);
    process.exit(2);
  }
}

function note(text: string): void {
  console.error(`note: ${text}`);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

if (process.argv.includes("--as-worker")) {
  serve();
} else {
  main().then(
    (code) => {
      process.exitCode = code;
    },
    (error: unknown) => {
      console.error(`error: ${messageOf(error)}`);
      process.exitCode = 1;
    },
  );
}
