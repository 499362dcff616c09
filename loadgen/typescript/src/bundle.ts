// Writes a bundle (docs/FORMAT.md) with plan and results, so that the analysis can report it like one of `ladder`.

import { execFileSync } from "node:child_process";
import { mkdir, open, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Options } from "./cli.ts";
import { toJson } from "./json.ts";
import { environment } from "./machine.ts";
import { SCHEMA, type ServiceFile, type TrialFile, type TrialId, type Validity, type WorkerResult } from "./schemas.ts";
import type { Ladder } from "./suite.ts";

/** The properties of a run that `run.json` names. */
export interface About {
  id: string;
  service: string;
  options: Options;
  versions: Record<string, string>;
  cpuRoles: Record<string, string>;
}

/** A bundle's folder; each trial is added when it ends. */
export class Bundle {
  readonly folder: string;
  private readonly about: About;
  private readonly startedAt = new Date().toISOString();
  private readonly ladders: object[] = [];
  private readonly trials: object[] = [];

  constructor(parent: string, about: About) {
    this.folder = join(parent, about.id);
    this.about = about;
  }

  /** The folder of a trial's files. */
  folderOf(trial: TrialId): string {
    const name = `${trial.tier}-p${trial.process}-r${trial.repeat}`;
    return join(this.folder, "trials", trial.service, trial.workload, trial.variant, name);
  }

  /** Adds a finished trial to `run.json`; its files must be in its folder already. */
  async finished(ladder: Ladder, trial: TrialId, validity: Validity): Promise<void> {
    await this.entry(ladder, trial, { state: "finished", validity, passed: null });
  }

  /** Adds a failed trial to `run.json`, with the reason why it has no result. */
  async fail(ladder: Ladder, trial: TrialId, reason: string): Promise<void> {
    await this.entry(ladder, trial, { state: "failed", reason });
  }

  /** Marks the run as finished in `run.json`. */
  async finish(): Promise<void> {
    await this.write("finished");
  }

  private async entry(ladder: Ladder, trial: TrialId, state: object): Promise<void> {
    this.trials.push({ trial, state });
    // One ladder per tier, because the rate may depend on the tier.
    this.ladders.push({
      workload: ladder.test,
      variant: ladder.variant,
      tiers: [trial.tier],
      load: ladder.load(trial.tier),
      message: ladder.message,
      warmup_seconds: ladder.warmupSeconds,
      window_seconds: ladder.windowSeconds,
    });
    await this.write("running");
  }

  private async write(state: "running" | "finished"): Promise<void> {
    const { about, startedAt, ladders, trials } = this;
    const { options } = about;
    await writeJson(join(this.folder, "run.json"), {
      schema: SCHEMA,
      id: about.id,
      started_at: startedAt,
      finished_at: state === "finished" ? new Date().toISOString() : null,
      state,
      plan: {
        schema: SCHEMA,
        name: "ts-bench",
        why: "What a Node.js application gets out of the service through npm ws.",
        seed: 1,
        services: [about.service],
        workers: options.processes,
        warmup_seconds: options.warmup,
        window_seconds: options.duration,
        drain_seconds: options.drain,
        ladders,
      },
      command: commandLine(),
      version: "0.1.0",
      commit: commit(),
      versions: about.versions,
      machines: [environment()],
      cpu_roles: about.cpuRoles,
      trials,
    });
  }
}

/** Writes the files that a trial is judged by. */
export async function keep(
  folder: string,
  trial: TrialFile,
  workers: WorkerResult[],
  service: ServiceFile,
): Promise<void> {
  for (const worker of workers) await writeJson(join(folder, "workers", `${worker.worker}.json`), worker);
  await writeJson(join(folder, "trial.json"), trial);
  await writeJson(join(folder, "service.json"), service);
}

/** Writes JSON atomically: a reader sees the old content or the new, never a part. */
async function writeJson(path: string, value: unknown): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.part`;
  const file = await open(temporary, "w");
  try {
    await file.writeFile(`${toJson(value)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
}

/** The name of a service, which becomes the name of a folder: a service names itself. The schemas have the pattern. */
export function folderName(name: string): string {
  if (/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/.test(name)) return name;
  const shown = JSON.stringify(name.slice(0, 100));
  throw new Error(`${shown} can't name the service's results; give --service with a name like rust-sync`);
}

/** The command line of this process. It holds no secret. */
function commandLine(): string {
  return ["npx tsx src/main.ts", ...process.argv.slice(2)].join(" ");
}

/** The commit of the checkout, marked when it has changes; empty outside a checkout. */
function commit(): string {
  const git = (...command: string[]) =>
    execFileSync("git", command, {
      cwd: import.meta.dirname,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  try {
    return git("rev-parse", "HEAD") + (git("status", "--porcelain") === "" ? "" : "+changes");
  } catch {
    return "";
  }
}
