// The worker pool: processes that are started once and used for all trials. The parent generates no load itself, so it
// can read the service's counters on time while the workers' event loops are busy.

import { type ChildProcess, fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { monotonicNs, NS_PER_MS } from "./clock.ts";
import type { WorkerResult } from "./schemas.ts";
import type { Assignment } from "./trial.ts";
import { type Barrier, runAssignment } from "./worker.ts";

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

/** Callbacks to the parent during a trial. */
export interface TrialObserver {
  /** Called when all are ready: the start in nanoseconds of the monotonic clock, and the number of open connections. */
  started(startNs: number, open: number): void;
  /** Called when the load of all workers has ended; connections are closed after it resolves. */
  loaded(): Promise<void>;
}

/** The worker processes that generate the load. Each runs one trial after the other. */
export class WorkerPool {
  private readonly workers: ChildProcess[];

  private constructor(workers: ChildProcess[]) {
    this.workers = workers;
  }

  /** Starts `count` workers, pinned to `cpus` if given (needs `taskset`). */
  static async start(count: number, cpus: string | undefined): Promise<WorkerPool> {
    const main = fileURLToPath(new URL("./main.ts", import.meta.url));
    const pinned =
      cpus === undefined ? {} : { execPath: "taskset", execArgv: ["-c", cpus, process.execPath, ...process.execArgv] };
    const workerPool = new WorkerPool([]);
    try {
      while (workerPool.workers.length < count) {
        // Starts as many at a time as the machine has CPUs, because each compiles this program.
        const batch = Array.from({ length: Math.min(availableParallelism(), count - workerPool.workers.length) }, () =>
          fork(main, ["--as-worker"], { ...pinned, serialization: "advanced", stdio: ["ignore", 2, 2, "ipc"] }),
        );
        workerPool.workers.push(...batch);
        await Promise.all(batch.map((worker) => nextMessage(worker, "up")));
      }
    } catch (error) {
      workerPool.stop();
      throw error;
    }
    return workerPool;
  }

  /** Runs one trial with an assignment for each worker; they start together when all are ready. */
  async run(assignments: Assignment[], secret: string, observer: TrialObserver): Promise<WorkerResult[]> {
    const pairs = assignments.map((assignment, index) => ({ assignment, worker: this.at(index) }));
    const ready = pairs.map(async ({ assignment, worker }) => {
      send(worker, { kind: "trial", assignment, secret });
      return (await nextMessage(worker, "ready")).open;
    });
    const open = (await Promise.all(ready)).reduce((sum, count) => sum + count, 0);
    const startNs = monotonicNs() + START_IN_MS * NS_PER_MS;
    const loaded = Promise.all(pairs.map(({ worker }) => nextMessage(worker, "loaded")));
    for (const { worker } of pairs) send(worker, { kind: "start", atNs: startNs });
    observer.started(startNs, open);
    await loaded;
    await observer.loaded();
    const results = pairs.map(async ({ worker }) => (await nextMessage(worker, "result")).result);
    for (const { worker } of pairs) send(worker, { kind: "close" });
    return Promise.all(results);
  }

  /** Kills all workers. */
  stop(): void {
    for (const worker of this.workers) worker.kill();
  }

  private at(index: number): ChildProcess {
    const worker = this.workers[index];
    if (worker === undefined) throw new Error(`there is no worker ${index}`);
    return worker;
  }
}

function send(worker: ChildProcess, message: ToWorker): void {
  worker.send(message);
}

/** The worker's next message, which must be of this kind; rejects when the worker fails or exits. */
function nextMessage<K extends FromWorker["kind"]>(
  worker: ChildProcess,
  kind: K,
): Promise<Extract<FromWorker, { kind: K }>> {
  return new Promise((resolve, reject) => {
    const settle = (complete: () => void) => {
      worker.off("message", onMessage);
      worker.off("exit", onExit);
      worker.off("error", onError);
      complete();
    };
    const onMessage = (value: FromWorker) =>
      settle(() => {
        if (value.kind === kind) resolve(value as Extract<FromWorker, { kind: K }>);
        else reject(new Error(value.kind === "failed" ? value.reason : `a worker said ${value.kind}, not ${kind}`));
      });
    const onExit = (code: number | null) => settle(() => reject(new Error(`a worker ended with status ${code}`)));
    const onError = (error: Error) => settle(() => reject(new Error(`failed to start a worker: ${error.message}`)));
    worker.on("message", onMessage);
    worker.on("exit", onExit);
    worker.on("error", onError);
  });
}

/** The main function of a worker process, which serves its parent until that exits. */
export function serve(): void {
  const report = (message: FromWorker) => process.send?.(message);
  let start: (atNs: number) => void = () => {};
  let close: () => void = () => {};
  const barrier: Barrier = {
    ready: (open) =>
      new Promise((resolve) => {
        start = resolve;
        report({ kind: "ready", open });
      }),
    loaded: () =>
      new Promise((resolve) => {
        close = resolve;
        report({ kind: "loaded" });
      }),
  };
  process.on("disconnect", () => process.exit(0));
  process.on("message", (message: ToWorker) => {
    if (message.kind === "start") return start(message.atNs);
    if (message.kind === "close") return close();
    runAssignment(message.assignment, message.secret, barrier).then(
      (result) => report({ kind: "result", result }),
      (error: unknown) => report({ kind: "failed", reason: error instanceof Error ? error.message : String(error) }),
    );
  });
  report({ kind: "up" });
}
