import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { findLadder, judge } from "../src/judge.ts";

const FOLDER = mkdtempSync(join(tmpdir(), "wse-ts-bench-"));
after(() => rmSync(FOLDER, { recursive: true }));

/** Writes a shell script named `ladder` into a folder; its `$2` is the folder to judge. */
function ladder(folder: string, script: string): string {
  const path = join(FOLDER, folder, "ladder");
  mkdirSync(join(FOLDER, folder), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** An empty folder for a trial. */
function trial(): string {
  return mkdtempSync(join(FOLDER, "trial-"));
}

test("an optimised build of this checkout comes before any other, and PATH last", () => {
  const path = join(FOLDER, "elsewhere");
  const found = () => findLadder(join(FOLDER, "checkout"), `/nowhere:${path}`);
  assert.throws(found, /there is no `ladder`.*: build it with `cargo build --release -p operator`$/);
  for (const folder of ["elsewhere", "checkout/target/debug", "checkout/target/release"]) {
    const built = ladder(folder, "exit 0");
    assert.equal(found(), built);
  }
});

test("a file that is not executable is not taken for ladder", () => {
  mkdirSync(join(FOLDER, "folder/ladder"), { recursive: true });
  chmodSync(ladder("text", "exit 0"), 0o644);
  assert.throws(() => findLadder(FOLDER, `${join(FOLDER, "folder")}:${join(FOLDER, "text")}`), /there is no `ladder`/);
});

test("a result is read whether the trial is valid or not, with all digits of its sums", async () => {
  for (const code of [0, 2]) {
    const sum = "18446744073709551615";
    const program = ladder(`ends-${code}`, `echo '{"left":${sum}}' > "$2/result.json"; exit ${code}`);
    assert.deepEqual(await judge(program, trial()), { left: BigInt(sum) });
  }
});

test("the error for a trial that can't be judged has the judge's message", async () => {
  const program = ladder("refuses", 'echo "ladder: $2/service.json: missing field" >&2; exit 1');
  const folder = trial();
  const message = `failed to judge the trial with ${program}: ${folder}/service.json: missing field`;
  await assert.rejects(judge(program, folder), { message });
});

test("a usage error of an older ladder without judge is not an invalid trial", async () => {
  const program = ladder("older", "echo \"error: unrecognized subcommand 'judge'\" >&2; exit 2");
  await assert.rejects(judge(program, trial()), /older\/ladder: error: unrecognized subcommand 'judge'$/);
});

test("a judge that is killed or missing is an error", async () => {
  await assert.rejects(judge(ladder("killed", "kill -9 $$"), trial()), /it ended with SIGKILL$/);
  await assert.rejects(judge(join(FOLDER, "absent/ladder"), trial()), /it ended with ENOENT$/);
});
