// The seven tests of the published suite: load, tiers and duration of each. Pure.

import type { Options } from "./cli.ts";
import { FORMATS, type WseMessage } from "./payload.ts";
import type { Offered } from "./trial.ts";

/** The names of tests for --test, in the suite's order. */
export const TESTS = [
  "connection-storm",
  "ping-latency",
  "throughput",
  "size-matrix",
  "format-comparison",
  "sustained-hold",
  "connection-limit",
] as const;
export type Test = (typeof TESTS)[number];

const DEFAULT_TIERS = [100, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 50_000];
const STORM_TIERS = [...DEFAULT_TIERS, 75_000, 100_000];
const FORMAT_TIERS = [100, 1000, 5000, 10_000];
/** Nominal sizes of `size-matrix` in bytes; each message is about ten bytes shorter, as published. */
const SIZES = [64, 256, 1024, 4096, 16_384, 65_536];
const BASE: WseMessage = { format: "json", size_bytes: 175, coalesce: 1 };
/** Longest window of `size-matrix` and `format-comparison` in seconds, as published. */
const BURST_SECONDS = 5;
const PINGS_PER_CONNECTION = 50;
/** Seconds between the pings of a connection in `sustained-hold`. */
const PING_EVERY_SECONDS = 5;
/** Time limit in seconds of a closed load with a fixed amount of work, which normally ends when the work is done. */
const LONGEST_WORK_SECONDS = 300;
/** Seconds that the connections of a probe must last; each is pinged once in that time. */
const PROBE_SECONDS = 3;

/** One test in one variant, with its tiers and load. */
export interface Ladder {
  test: Test;
  variant: string;
  message: WseMessage;
  tiers: number[];
  warmupSeconds: number;
  windowSeconds: number;
  /** Whether the window has a fixed length. Storms and counted pings end when their work is done. */
  fixedWindow: boolean;
  load: (tier: number) => Offered;
}

/** The ladders of a test. `maxConnections` is the number of connections that this machine can hold. */
export function ladders(test: Test, options: Options, maxConnections: number): Ladder[] {
  const tiers = (published: number[]) => options.tiers ?? published.filter((tier) => tier <= maxConnections);
  const closed = (messages_per_connection: number | null) => (): Offered => {
    return { model: "closed", messages_per_connection, in_flight: options.batchSize };
  };
  const open =
    (everySeconds: number) =>
    (tier: number): Offered => {
      return { model: "open", rate_per_second: tier / everySeconds, arrivals: "constant" };
    };
  const { duration, warmup } = options;
  const message = { ...BASE, coalesce: options.coalesce };
  const work = { warmupSeconds: 0, windowSeconds: LONGEST_WORK_SECONDS, fixedWindow: false };
  const window = (windowSeconds: number) => ({ warmupSeconds: warmup, windowSeconds, fixedWindow: true });
  const held = { message: BASE, warmupSeconds: 0, fixedWindow: true };
  const ladder = (variant: string, definition: Omit<Ladder, "test" | "variant">): Ladder => ({
    test,
    variant,
    ...definition,
  });
  switch (test) {
    case "connection-storm":
      return [ladder("standard", { message: BASE, tiers: tiers(STORM_TIERS), load: closed(null), ...work })];
    case "ping-latency":
      return [
        ladder("standard", { message: BASE, tiers: tiers(DEFAULT_TIERS), load: closed(PINGS_PER_CONNECTION), ...work }),
      ];
    case "throughput":
      return [ladder("json", { message, tiers: tiers(DEFAULT_TIERS), load: closed(null), ...window(duration) })];
    case "size-matrix":
      return SIZES.map((size_bytes) => {
        const sized = { ...message, size_bytes };
        const burst = window(Math.min(BURST_SECONDS, duration));
        return ladder(`${size_bytes}-bytes`, {
          message: sized,
          tiers: tiers(DEFAULT_TIERS),
          load: closed(null),
          ...burst,
        });
      });
    case "format-comparison":
      return FORMATS.map((format) => {
        const burst = window(Math.min(BURST_SECONDS, duration));
        return ladder(format, {
          message: { ...message, format },
          tiers: tiers(FORMAT_TIERS),
          load: closed(null),
          ...burst,
        });
      });
    case "sustained-hold": {
      const every = Math.min(PING_EVERY_SECONDS, options.hold);
      return [
        ladder("standard", { ...held, tiers: tiers(DEFAULT_TIERS), windowSeconds: options.hold, load: open(every) }),
      ];
    }
    case "connection-limit":
      return [ladder("standard", { ...held, tiers: [], windowSeconds: PROBE_SECONDS, load: open(PROBE_SECONDS) })];
  }
}

/** The tests that --test selects: one, or `all`. */
export function chosen(name: string): readonly Test[] {
  if (name === "all") return TESTS;
  const test = TESTS.find((one) => one === name);
  if (test === undefined) throw new Error(`there is no test "${name}"; known are all, ${TESTS.join(", ")}`);
  return [test];
}
