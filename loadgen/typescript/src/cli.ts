// The command line: the flags of the published benchmark, and additional ones.

import { Command, InvalidArgumentError, Option } from "commander";

/** The default secret of the bench servers; it is public and protects nothing. */
const BENCH_SECRET = "bench-secret-key-for-testing-only";
/** The published benchmarks expect the metrics port 1000 above the service's port. */
const METRICS_OFFSET = 1000;

/** The validated options. Durations are in seconds. */
export interface Options {
  host: string;
  port: number;
  secret: string;
  test: string;
  tiers?: number[];
  duration: number;
  hold: number;
  warmup: number;
  drain: number;
  batchSize: number;
  maxConnections: number;
  processes: number;
  coalesce: number;
  cpus?: string;
  statsUrl: string;
  service?: string;
  results?: string;
  output: "text" | "json" | "markdown";
}

/** Parses the arguments after the program's name; prints help, version or errors and exits then. */
export function parse(argv: string[]): Options {
  const program = command();
  program.parse(argv, { from: "user" });
  const { secret: shown, ...parsed } = program.opts<
    Omit<Options, "statsUrl" | "secret"> & { statsUrl?: string; secret?: string | true }
  >();
  if (shown !== undefined) {
    program.error("error: --secret shows its value to all users of the machine (ps); set WSE_BENCH_SECRET instead");
  }
  const { host, port } = parsed;
  return {
    ...parsed,
    secret: process.env.WSE_BENCH_SECRET || BENCH_SECRET,
    statsUrl: parsed.statsUrl ?? `http://${host}:${port + METRICS_OFFSET}`,
  };
}

function command(): Command {
  return (
    new Command("wse-ts-bench")
      .description(
        "Load on WSE services through npm ws, accounted for message by message. Exit code: 0 when every test did what " +
          "it says, 1 when not, 2 for bad usage. WSE_BENCH_SECRET is the secret that signs the token.",
      )
      .version("0.1.0")
      .option("--host <host>", "host of the service", "127.0.0.1")
      .option("--port <port>", "its port", whole(1, 65_535), 5006)
      // Refused after the parse, with the variable to set: the published program had it.
      .addOption(new Option("--secret [secret]").hideHelp())
      .option("--test <name>", "one test of the suite, or all", "all")
      .option("--tiers <list>", "connections of each tier over all processes, separated by commas", list)
      .option("--duration <seconds>", "length of the measured window", positive, 10)
      .option("--hold <seconds>", "how long sustained-hold holds", positive, 30)
      .option("--warmup <seconds>", "load before the window, not measured", notNegative, 0.5)
      .option("--drain <seconds>", "longest wait for what is in flight after the window", positive, 10)
      .option(
        "--batch-size <attempts>",
        "connection attempts in flight at once, over all processes",
        whole(1, 65_536),
        500,
      )
      .option("--max-connections <connections>", "tiers and probes end here", whole(1, 10_000_000), 100_000)
      .option("--processes <processes>", "worker processes, which start together", whole(1, 1024), 1)
      .option("--coalesce <messages>", "messages handed to the socket in one write", whole(1, 65_536), 1)
      .option("--cpus <list>", "CPUs for the workers, such as 1 or 2-63 (needs taskset)")
      .option("--stats-url <url>", "the service's metrics port; default: the port + 1000")
      .option("--service <name>", "what results call the service; default: what it calls itself")
      .option("--results <folder>", "write a bundle into a folder of its own in here")
      .addOption(
        new Option("--output <kind>", "how results are printed").choices(["text", "json", "markdown"]).default("text"),
      )
      .exitOverride((error) => {
        // Commander has printed the message; help and version are not errors.
        process.exit(error.exitCode === 0 ? 0 : 2);
      })
  );
}

function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (Number.isInteger(value) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`it should be a whole number from ${min} to ${max}`);
  };
}

function list(text: string): number[] {
  return text.split(",").map(whole(1, 10_000_000));
}

function positive(text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new InvalidArgumentError("it should be a number above 0");
}

function notNegative(text: string): number {
  const value = Number(text);
  if (text.trim() !== "" && Number.isFinite(value) && value >= 0) return value;
  throw new InvalidArgumentError("it should be a number, 0 or more");
}
