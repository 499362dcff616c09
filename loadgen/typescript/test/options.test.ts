import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { folderName } from "../src/bundle.ts";
import { parse } from "../src/cli.ts";
import { searchLimit } from "../src/limit.ts";
import { cpuList } from "../src/machine.ts";
import { quotaOf } from "../src/quota.ts";
import { chosen, ladders, TESTS } from "../src/suite.ts";

test("the limit is bracketed to a thousand connections", async () => {
  const probed: number[] = [];
  const search = (limit: number, most: number) =>
    searchLimit(most, async (connections) => {
      probed.push(connections);
      return connections <= limit;
    });
  assert.deepEqual(await search(5300, 100_000), { held: 5000, failed: 6000 });
  assert.deepEqual(probed, [1000, 2000, 4000, 8000, 6000, 5000]);
  assert.deepEqual(await search(1e9, 3000), { held: 3000, failed: null });
  assert.deepEqual(await search(0, 3000), { held: 0, failed: 1000 });
});

test("the published command lines are parsed", () => {
  const line = "--host 127.0.0.1 --port 5006 --tiers 100,500,1000,5000,10000,30000,50000 --duration 10";
  const suite = parse(line.split(" "));
  assert.deepEqual(suite.tiers, [100, 500, 1000, 5000, 10_000, 30_000, 50_000]);
  assert.deepEqual([suite.test, suite.statsUrl], ["all", "http://127.0.0.1:6006"]);
  const single = parse("--test throughput --tiers 100,1000 --duration 3 --processes 64 --output markdown".split(" "));
  assert.deepEqual([single.processes, single.duration, single.output], [64, 3, "markdown"]);
});

test("a service name that is a path is rejected", () => {
  assert.equal(folderName("rust-sync_1.0"), "rust-sync_1.0");
  for (const name of ["", "..", "../x", "a/b", ".lock", "a\n", "a".repeat(65)]) {
    assert.throws(() => folderName(name), /can't name the service's results/);
  }
});

test("all seven tests have ladders, and published tiers are limited by the machine", () => {
  const options = parse([]);
  assert.equal(chosen("all").length, 7);
  for (const name of TESTS) assert.ok(ladders(name, options, 1e6).length > 0, name);
  assert.deepEqual(ladders("throughput", options, 1100)[0]?.tiers, [100, 500, 1000]);
  assert.throws(() => chosen("fanout"), /there is no test "fanout"; known are all, connection-storm/);
});

test("the kernel's lists of CPUs are parsed", () => {
  assert.deepEqual(cpuList("0-2,5"), [0, 1, 2, 5]);
  assert.deepEqual(cpuList(""), []);
});

test("the quota is read from both versions of cgroups", () => {
  const of = (files: Record<string, string>) => {
    const group = mkdtempSync(join(tmpdir(), "wse-ts-quota-"));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(group, name), text);
    const found = quotaOf(group);
    rmSync(group, { recursive: true });
    return found;
  };
  assert.equal(of({ "cpu.max": "5000 10000" }), 0.5);
  assert.equal(of({ "cpu.max": "max 10000" }), undefined);
  assert.equal(of({ "cpu.cfs_quota_us": "15000", "cpu.cfs_period_us": "10000" }), 1.5);
  assert.equal(of({ "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "10000" }), undefined);
  assert.equal(of({}), undefined);
});
