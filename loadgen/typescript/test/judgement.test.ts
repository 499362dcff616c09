import assert from "node:assert/strict";
import { test } from "node:test";
import { books } from "../src/books.ts";
import { parse } from "../src/cli.ts";
import { boundBy, figures, type Measured } from "../src/figures.ts";
import { searchLimit } from "../src/limit.ts";
import { cpuList } from "../src/machine.ts";
import { type Merged, merge } from "../src/merge.ts";
import type { Load, Reading } from "../src/schemas.ts";
import { chosen, ladders, TESTS } from "../src/suite.ts";
import { validity } from "../src/validity.ts";

const closed: Load = { model: "closed", messages_per_connection: null, in_flight: 1 };
const SECOND = 1e9;

/** The service at a moment: so much CPU used, so many messages delivered. */
function reading(second: number, cpuSeconds: number, delivered: number): Reading {
  const stats = {
    service: "s",
    version: "1",
    uptime_seconds: second,
    connections: { accepted: 1, open: 1, closed: {}, rejected: {} },
    messages: {
      received: delivered,
      consumed: 0,
      delivered,
      dropped: {},
      queued: 0,
      malformed: 0,
      sent: 0,
      send_dropped: {},
    },
    bytes: { received: 0, sent: 0 },
    application: { delivered, sequence_sum: 0n, unnumbered: 0 },
  };
  const kernel = { pid: 7, rss_bytes: 1000, cpu_limit: 1, throttled_periods: null, periods: null };
  return { unix_ns: second * SECOND, cpu_ns: cpuSeconds * SECOND, stats, ...kernel };
}

/** Two seconds in which the workers used so much CPU together, and the service so much. */
function measured(workerCpuSeconds: number, serviceCpuSeconds: number, workerCpus: number[], serviceCpus: number[]) {
  const merged: Merged = merge([]);
  Object.assign(merged.window, {
    duration_ns: 2 * SECOND,
    sent: 2000,
    due: 2000,
    writes: 500,
    cpu_ns: workerCpuSeconds * SECOND,
  });
  const trial: Measured = {
    load: closed,
    windowNs: 2 * SECOND,
    openAtStart: 1,
    results: [],
    readings: {
      before: reading(1, 0, 0),
      window_start: reading(2, 0, 0),
      window_end: reading(4, serviceCpuSeconds, 1800),
      after: null,
    },
    workerCpus,
    serviceCpus,
  };
  return { trial, merged, figures: figures(trial, merged, merged.messages, "application") };
}

test("a rate comes from the application and not from what was written", () => {
  const found = measured(1, 1, [1], [0]).figures;
  assert.deepEqual([found.written_per_second, found.delivered_per_second, found.messages_per_write], [1000, 900, 4]);
});

test("the service's CPU bounds a flood that used it up", () => {
  assert.equal(boundBy(closed, measured(0.2, 1.9, [1], [0]).figures), "service");
  assert.equal(boundBy(closed, measured(0.2, 0.2, [1], [0]).figures), "neither");
});

test("sides that share CPUs are judged by what the other left them", () => {
  // Of four seconds of CPU the service took 2.5: what 64 workers had is 1.5, and they used 1.45.
  const { trial, merged } = measured(1.45, 2.5, [0, 1], [0, 1]);
  const worker = { window: merged.window } as Measured["results"][number];
  const found = figures({ ...trial, results: Array(64).fill(worker) }, merged, merged.messages, "application");
  assert.ok(Math.abs((found.worker_cpu_share ?? 0) - 1.45 / 1.5) < 1e-9);
  assert.equal(boundBy(closed, found), "both");
});

test("an open load is bound by its schedule, and an unknown CPU by nobody knows what", () => {
  const open: Load = { model: "open", rate_per_second: 1, arrivals: "constant" };
  assert.equal(boundBy(open, measured(2, 2, [1], [0]).figures), null);
  assert.equal(boundBy(closed, { window_seconds: 1 }), null);
});

test("a late reading and a restart make a trial invalid, each by its name", () => {
  const { trial, merged, figures: found } = measured(1, 1, [1], [0]);
  const kinds = () => {
    const judged = validity(trial, merged, books(merged, "application", null, null), found, 0);
    return judged.state === "valid" ? [] : judged.reasons.map((reason) => reason.kind);
  };
  assert.deepEqual(kinds(), []);
  if (trial.readings.window_end) trial.readings.window_end.unix_ns = 7 * SECOND;
  assert.deepEqual(kinds(), ["reading_late"]);
  if (trial.readings.window_end) trial.readings.window_end.pid = 8;
  assert.deepEqual(kinds(), ["service_restarted", "reading_late"]);
});

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

test("the published command lines are understood", () => {
  const line = "--host 127.0.0.1 --port 5006 --secret s --tiers 100,500,1000,5000,10000,30000,50000 --duration 10";
  const suite = parse(line.split(" "));
  assert.deepEqual(suite.tiers, [100, 500, 1000, 5000, 10_000, 30_000, 50_000]);
  assert.deepEqual([suite.test, suite.statsUrl], ["all", "http://127.0.0.1:6006"]);
  const single = parse("--test throughput --tiers 100,1000 --duration 3 --processes 64 --output markdown".split(" "));
  assert.deepEqual([single.processes, single.duration, single.output], [64, 3, "markdown"]);
});

test("all seven tests have ladders, and published tiers end where the machine does", () => {
  const options = parse([]);
  assert.equal(chosen("all").length, 7);
  for (const name of TESTS) assert.ok(ladders(name, options, 1e6).length > 0, name);
  assert.deepEqual(ladders("throughput", options, 1100)[0]?.tiers, [100, 500, 1000]);
  assert.throws(() => chosen("fanout"), /there is no test "fanout"; known are all, connection-storm/);
});

test("a list of CPUs is read as the kernel writes it", () => {
  assert.deepEqual(cpuList("0-2,5"), [0, 1, 2, 5]);
  assert.deepEqual(cpuList(""), []);
});
