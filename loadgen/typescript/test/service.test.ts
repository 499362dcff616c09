// The whole program against real services: its output, its bundles, and faults that it must detect.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const FOLDER = mkdtempSync(join(tmpdir(), "wse-ts-bench-"));
const started: ChildProcess[] = [];
after(() => {
  for (const service of started) service.kill();
  rmSync(FOLDER, { recursive: true });
});

/** Starts a service on ports that the kernel chooses; returns the flags that point to it. */
async function start(command: string, ...flags: string[]): Promise<string[]> {
  const service = spawn(join(ROOT, command), flags, { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
  started.push(service);
  for await (const line of createInterface({ input: service.stdout })) {
    const { address, metrics_address } = JSON.parse(line);
    return ["--port", address.split(":")[1], "--stats-url", `http://${metrics_address}`];
  }
  throw new Error(`${command} ended before it was ready`);
}

const wse = (delivery: string) =>
  start(
    ".venv/bin/python",
    "services/wse-server/bench_server.py",
    "--port",
    "0",
    "--metrics-port",
    "0",
    "--delivery",
    delivery,
  );
const flawed = (flaw: string) => start("target/release/self-test-service", "--flaw", flaw, "--every", "50");

/** Runs the program until it exits. */
async function bench(...words: string[]): Promise<{ status: number | null; out: string; err: string }> {
  const main = fileURLToPath(new URL("../src/main.ts", import.meta.url));
  const child = spawn(process.execPath, ["--import", "tsx", main, ...words], { stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (err += data));
  const status = await new Promise<number | null>((resolve) => child.on("close", resolve));
  return { status, out, err };
}

// biome-ignore lint/suspicious/noExplicitAny: what a program printed has no type.
function parsed(text: string): any {
  return JSON.parse(text);
}

const validators = new Map<string, ReturnType<Ajv2020["compile"]>>();
function assertSchema(name: string, file: string): void {
  let validate = validators.get(name);
  if (validate === undefined) {
    const schema = JSON.parse(readFileSync(join(ROOT, "docs/schemas", `${name}.schema.json`), "utf8"));
    validate = new Ajv2020({ strict: false, validateFormats: false }).compile(schema);
    validators.set(name, validate);
  }
  assert.ok(validate(JSON.parse(readFileSync(file, "utf8"))), `${file}: ${JSON.stringify(validate.errors)}`);
}

/** Asserts that the books balance; other reasons for invalidity may come from a busy machine. */
function assertAccounted({ validity }: { validity: { reasons?: { kind: string; detail: string }[] } }): void {
  const unbalanced = (validity.reasons ?? []).filter((one) => one.kind === "unaccounted");
  assert.deepEqual(unbalanced, []);
}

test("all seven tests run in two processes, have balanced books and write a bundle that matches the schemas", async () => {
  const found = await wse("batch");
  const results = join(FOLDER, "whole");
  const small = ["--tiers", "12", "--duration", "0.3", "--warmup", "0.1", "--hold", "0.5", "--max-connections", "40"];
  const { out, err } = await bench(...found, ...small, "--processes", "2", "--results", results, "--output", "json");
  const outcomes = parsed(out).flatMap((one: { results: object[] }) => one.results);
  assert.equal(outcomes.length, 6 + 1 + 1 + 1 + 3 + 1 + 1, err);
  for (const { extra } of outcomes) {
    assert.equal(extra.problem, undefined);
    assertAccounted(extra);
    assert.equal(extra.workers.length, 2);
    if (extra.witness === "application") assert.ok(extra.messages.delivered > 0 && extra.messages.lost === 0);
  }
  const folder = join(results, readdirSync(results)[0] ?? "");
  assertSchema("run", join(folder, "run.json"));
  for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((one) =>
    one.endsWith(".json"),
  )) {
    if (file.endsWith("/trial.json")) assertSchema("trial-file", join(folder, file));
    if (file.endsWith("/result.json")) assertSchema("trial-result", join(folder, file));
    if (file.endsWith("/service.json")) assertSchema("service-file", join(folder, file));
    if (file.includes("/workers/")) assertSchema("worker-result", join(folder, file));
  }
});

test("a service without an application has no witness and so no throughput", async () => {
  const flood = ["--test", "throughput", "--tiers", "2", "--duration", "0.2", "--output", "json"];
  const { out } = await bench(...(await wse("discard")), ...flood);
  const { extra } = parsed(out)[0].results[0];
  assertAccounted(extra);
  assert.deepEqual([extra.witness, extra.figures.delivered_per_second], ["none", null]);
  assert.ok(extra.figures.received_per_second > 0 && extra.messages.dropped.discarded > 0);
});

test("a counted drop is an outcome, and a wrong counter makes the trial invalid", async () => {
  const flood = ["--test", "throughput", "--tiers", "3", "--duration", "0.2", "--output", "json"];
  const honest = parsed((await bench(...(await flawed("drop")), ...flood)).out)[0].results[0].extra;
  assertAccounted(honest);
  assert.ok(honest.messages.dropped.self_test > 0);
  const { out, status } = await bench(...(await flawed("liar")), ...flood);
  const { validity } = parsed(out)[0].results[0].extra;
  assert.deepEqual([status, validity.reasons[0].kind], [1, "unaccounted"]);
});

test("a secret on the command line is refused with the variable to set", async () => {
  for (const words of [["--secret", "s3cret"], ["--secret=s3cret"], ["--secret"]]) {
    const refused = await bench(...words);
    assert.deepEqual([refused.status, /set WSE_BENCH_SECRET instead/.test(refused.err)], [2, true]);
    assert.ok(!refused.err.includes("s3cret"));
  }
});

test("a wrong secret or an absent service is an error that names what to check", async () => {
  const found = await wse("batch");
  process.env.WSE_BENCH_SECRET = "another-secret-of-at-least-32-bytes";
  const refused = await bench(...found, "--test", "throughput").finally(() => delete process.env.WSE_BENCH_SECRET);
  assert.equal(refused.status, 1);
  assert.match(refused.err, /refuses connections: closed 4401; is it started, and is WSE_BENCH_SECRET its own\?/);
  const absent = await bench("--port", "1", "--test", "throughput");
  assert.deepEqual([absent.status, /refuses connections: econnrefused/.test(absent.err)], [1, true]);
  const misspelt = await bench("--tiers", "100,x");
  assert.deepEqual([misspelt.status, /whole number from 1/.test(misspelt.err)], [2, true]);
});
