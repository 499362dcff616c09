// The worker pool: processes that are started once and used for all trials. The parent generates no load itself, so it
// can read the service's counters on time while the workers' event loops are busy.

import { type ChildProcess, fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { monotonicNs, NS_PER_MS } from "./clock.ts";
import type { WorkerResult } from "./schemas.ts";
import type { Assignment } from "./trial.ts";
import { carryOut, type Gate } from "./worker.ts";

/** Time from "all are ready" to the start: enough to wake and notify every worker. */
const START_IN_MS = 50;

type ToWorker =
  | { kind: "trial"; assignment: Assignment; secret: string }
  | { kind: "start"; atNs: number }
  | { kind: "close" };
type FromWorker =
  | { kind: "up" }
  | { kind: "ready"; open: number }
  | { kind: "loaded" }
  | { kind: "result"; result: WorkerResult }
  | { kind: "failed"; reason: string };

/** Callbacks of the parent during a trial. */
export interface Watch {
  /** Called when all are ready: the start in nanoseconds of the monotonic clock, and the number of open connections. */
  started(startNs: number, open: number): void;
  /** Called when the load of all workers has ended; connections are closed after it resolves. */
  loaded(): Promise<void>;
}

/** The worker processes that generate the load. */
export class Crew {
  private readonly workers: ChildProcess[];

  private constructor(workers: ChildProcess[]) {
    this.workers = workers;
  }

  /** Starts `count` workers, pinned to `cpus` if given (needs `taskset`). */
  static async start(count: number, cpus: string | undefined): Promise<Crew> {
    const main = fileURLToPath(new URL("./main.ts", import.meta.url));
    const pinned =
      cpus === undefined ? {} : { execPath: "taskset", execArgv: ["-c", cpus, process.execPath, ...process.execArgv] };
    const crew = new Crew([]);
    try {
      while (crew.workers.length < count) {
        // Starts as many at a time as the machine has CPUs, because each compiles this program.
        const batch = Array.from({ length: Math.min(availableParallelism(), count - crew.workers.length) }, () =>
          fork(main, ["--as-worker"], { ...pinned, serialization: "advanced", stdio: ["ignore", 2, 2, "ipc"] }),
        );
        crew.workers.push(...batch);
        await Promise.all(batch.map((worker) => heard(worker, "up")));
      }
    } catch (error) {
      crew.stop();
      throw error;
    }
    return crew;
  }

  /** Runs one trial with an assignment for each worker; they start together when all are ready. */
  async run(assignments: Assignment[], secret: string, watch: Watch): Promise<WorkerResult[]> {
    const pairs = assignments.map((assignment, place) => ({ assignment, worker: this.at(place) }));
    const ready = pairs.map(async ({ assignment, worker }) => {
      tell(worker, { kind: "trial", assignment, secret });
      return (await heard(worker, "ready")).open;
    });
    const open = (await Promise.all(ready)).reduce((sum, one) => sum + one, 0);
    const startNs = monotonicNs() + START_IN_MS * NS_PER_MS;
    const loaded = Promise.all(pairs.map(({ worker }) => heard(worker, "loaded")));
    for (const { worker } of pairs) tell(worker, { kind: "start", atNs: startNs });
    watch.started(startNs, open);
    await loaded;
    await watch.loaded();
    const results = pairs.map(async ({ worker }) => (await heard(worker, "result")).result);
    for (const { worker } of pairs) tell(worker, { kind: "close" });
    return Promise.all(results);
  }

  /** Kills all workers. */
  stop(): void {
    for (const worker of this.workers) worker.kill();
  }

  private at(place: number): ChildProcess {
    const worker = this.workers[place];
    if (worker === undefined) throw new Error(`there is no worker ${place}`);
    return worker;
  }
}

function tell(worker: ChildProcess, message: ToWorker): void {
  worker.send(message);
}

/** The worker's next message, which must be of this kind; rejects when the worker fails or exits. */
function heard<K extends FromWorker["kind"]>(worker: ChildProcess, kind: K): Promise<Extract<FromWorker, { kind: K }>> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void) => {
      worker.off("message", message);
      worker.off("exit", exit);
      worker.off("error", failed);
      act();
    };
    const message = (value: FromWorker) =>
      settle(() => {
        if (value.kind === kind) resolve(value as Extract<FromWorker, { kind: K }>);
        else reject(new Error(value.kind === "failed" ? value.reason : `a worker said ${value.kind}, not ${kind}`));
      });
    const exit = (code: number | null) => settle(() => reject(new Error(`a worker ended with status ${code}`)));
    const failed = (error: Error) => settle(() => reject(new Error(`failed to start a worker: ${error.message}`)));
    worker.on("message", message);
    worker.on("exit", exit);
    worker.on("error", failed);
  });
}

/** The main function of a worker process, which serves its parent until that exits. */
export function serve(): void {
  const say = (message: FromWorker) => process.send?.(message);
  let start: (atNs: number) => void = () => {};
  let close: () => void = () => {};
  const gate: Gate = {
    ready: (open) =>
      new Promise((resolve) => {
        start = resolve;
        say({ kind: "ready", open });
      }),
    loaded: () =>
      new Promise((resolve) => {
        close = resolve;
        say({ kind: "loaded" });
      }),
  };
  process.on("disconnect", () => process.exit(0));
  process.on("message", (message: ToWorker) => {
    if (message.kind === "start") return start(message.atNs);
    if (message.kind === "close") return close();
    carryOut(message.assignment, message.secret, gate).then(
      (result) => say({ kind: "result", result }),
      (error: unknown) => say({ kind: "failed", reason: error instanceof Error ? error.message : String(error) }),
    );
  });
  say({ kind: "up" });
}
