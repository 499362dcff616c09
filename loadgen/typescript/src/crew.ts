// The worker processes, started once and used for every trial. This process offers no load itself: so it reads the
// service's counters on time while the workers' event loops are full.

import { type ChildProcess, fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { monotonicNs, NS_PER_MS } from "./clock.ts";
import type { WorkerResult } from "./schemas.ts";
import type { Assignment } from "./trial.ts";
import { carryOut, type Gate } from "./worker.ts";

/** From "all are ready" to the start: enough to tell every worker, each of which may have to be woken. */
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

/** What else happens during a trial. */
export interface Watch {
  /** All are ready: the load starts at this moment of the monotonic clock, in nanoseconds. */
  started(startNs: number, open: number): void;
  /** The load of all is over and the connections are still open; they are closed when this is done. */
  loaded(): Promise<void>;
}

/** The processes that offer the load. */
export class Crew {
  private readonly workers: ChildProcess[];

  private constructor(workers: ChildProcess[]) {
    this.workers = workers;
  }

  /** Starts so many workers, on these CPUs where any are named (needs `taskset`). */
  static async start(count: number, cpus: string | undefined): Promise<Crew> {
    const main = fileURLToPath(new URL("./main.ts", import.meta.url));
    const pinned =
      cpus === undefined ? {} : { execPath: "taskset", execArgv: ["-c", cpus, process.execPath, ...process.execArgv] };
    const crew = new Crew([]);
    try {
      while (crew.workers.length < count) {
        // As many at a time as the machine has CPUs: each compiles this program anew.
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

  /** One trial, an assignment for each worker: they start together once all are ready. */
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

  /** Ends all workers. */
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

/** The worker's next message, which has to be of a kind; its failure or its end is an error. */
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

/** The other side: what a worker process does until its parent ends. */
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
