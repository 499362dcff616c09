// Has trials judged: `ladder judge FOLDER` reads a trial's files and writes `result.json`. This program has no rules.

import { execFile } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { fromJson } from "./json.ts";
import type { TrialResult } from "./schemas.ts";

const CHECKOUT = fileURLToPath(new URL("../../..", import.meta.url));
/** Exit codes of `ladder judge` after which there is a result: the trial is valid, or invalid. */
const JUDGED: unknown[] = [0, 2];

/** Finds `ladder`: a build of this checkout (optimised first), else on PATH; throws with the command that builds it. */
export function findLadder(checkout = CHECKOUT, path = process.env.PATH ?? ""): string {
  const built = ["release", "debug"].map((profile) => join(checkout, "target", profile));
  const folders = [...built, ...path.split(delimiter).filter((folder) => folder !== "")];
  const program = folders.map((folder) => join(folder, "ladder")).find(isProgram);
  if (program !== undefined) return program;
  throw new Error(
    "there is no `ladder`, which judges trials, in this checkout's target/release or target/debug or on PATH: " +
      "build it with `cargo build --release -p operator`",
  );
}

/** Judges the trial in a folder and returns its `result.json`; throws when it can't be judged. */
export async function judge(ladder: string, folder: string): Promise<TrialResult> {
  const { code, stderr } = await run(ladder, "judge", folder);
  if (JUDGED.includes(code)) {
    const text = await readFile(join(folder, "result.json"), "utf8").catch(() => undefined);
    if (text !== undefined) return fromJson<TrialResult>(text);
  }
  // An older `ladder` without `judge` also exits with 2, for bad usage.
  const reason = stderr.trim().replace(/^ladder: /, "") || `it ended with ${code}`;
  throw new Error(`failed to judge the trial with ${ladder}: ${reason}`);
}

interface Exit {
  /** Exit code, or the name of the signal or error that ended the program or prevented its start. */
  code: unknown;
  stderr: string;
}

function run(program: string, ...args: string[]): Promise<Exit> {
  return new Promise((resolve) => {
    execFile(program, args, (error, _, stderr) => {
      resolve({ code: error === null ? 0 : (error.code ?? error.signal), stderr });
    });
  });
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
