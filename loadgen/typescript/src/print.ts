// Formats results as tables for a terminal or as Markdown, and as JSON for programs.

import { type Outcome, problems } from "./bench.ts";
import { toJson } from "./json.ts";
import { composer, FIRST_SEQUENCE, type WseMessage } from "./payload.ts";
import type { TrialResult } from "./schemas.ts";
import type { Ladder } from "./suite.ts";

const NOT_AVAILABLE = "n/a";
const NS_PER_MS = 1e6;

interface Column {
  title: string;
  cell: (result: TrialResult) => string;
}

const FLOOD: Column[] = [
  { title: "delivered/s", cell: (one) => atLeast(one, one.figures.delivered_per_second) },
  { title: "received/s", cell: (one) => rate(one.figures.received_per_second) },
  { title: "written/s (client)", cell: (one) => rate(one.figures.written_per_second) },
  { title: "dropped/s", cell: (one) => rate(one.figures.dropped_per_second) },
  { title: "MB/s delivered", cell: (one) => megabytes(one) },
  { title: "msgs/write", cell: (one) => fixed(one.figures.messages_per_write, 1) },
  { title: "service µs/msg", cell: (one) => fixed(one.figures.service_cpu_seconds_per_million, 2) },
  { title: "client µs/msg", cell: (one) => fixed(one.figures.worker_cpu_seconds_per_million, 2) },
  { title: "witness", cell: (one) => one.witness },
  { title: "bound by", cell: (one) => one.bound_by ?? NOT_AVAILABLE },
];

const STORM: Column[] = [
  { title: "open", cell: (one) => String(one.connections.open) },
  { title: "failed", cell: (one) => String(total(one.connections.failed)) },
  { title: "accepted/s", cell: (one) => atLeast(one, one.figures.accepted_per_second) },
  ...latency("handshake_ns"),
  { title: "bound by", cell: (one) => one.bound_by ?? NOT_AVAILABLE },
];

const PINGS: Column[] = [
  { title: "open", cell: (one) => String(one.connections.open) },
  { title: "pings", cell: (one) => String(one.messages.sent) },
  { title: "answered", cell: (one) => String(one.messages.delivered) },
  ...latency("response_ns"),
  { title: "load", cell: (one) => one.load.model },
  { title: "bound by", cell: (one) => one.bound_by ?? "its schedule" },
];

const HOLD: Column[] = [
  { title: "survival", cell: (one) => survival(one) },
  { title: "ended early", cell: (one) => String(total(one.connections.closed_early)) },
  ...PINGS,
];

function columns(ladder: Ladder): Column[] {
  switch (ladder.test) {
    case "connection-storm":
      return STORM;
    case "ping-latency":
      return PINGS;
    case "sustained-hold":
    case "connection-limit":
      return HOLD;
    default:
      return FLOOD;
  }
}

/** A table of one ladder's outcomes, followed by their problems. */
export function tables(ladder: Ladder, outcomes: Outcome[], markdown: boolean): string {
  const shown = columns(ladder);
  const head = ["connections", ...shown.map((column) => column.title)];
  const rows = outcomes.map(({ tier, result }) => [
    tier.toLocaleString("en"),
    ...shown.map((column) => (result === undefined ? NOT_AVAILABLE : column.cell(result))),
  ]);
  const notes = outcomes.flatMap((one) =>
    problems(one).map((problem) => `${one.tier.toLocaleString("en")}: ${problem}`),
  );
  const message = shown === FLOOD ? ` (${ladder.message.format}, ${payloadBytes(ladder.message)} bytes)` : "";
  const title = `${ladder.test} · ${ladder.variant}${message}`;
  const bullets = notes.map((note) => `${markdown ? "- " : "  ! "}${note}`);
  return [markdown ? `## ${title}\n` : title, ...aligned([head, ...rows], markdown), ...bullets, ""].join("\n");
}

function aligned(rows: string[][], markdown: boolean): string[] {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)));
  const lines = rows.map((row) => row.map((cell, at) => cell.padStart(widths[at] ?? 0)).join(markdown ? " | " : "  "));
  if (!markdown) return lines.map((line) => `  ${line}`);
  const rule = widths.map((width) => `${"-".repeat(Math.max(2, width - 1))}:`).join(" | ");
  return [lines[0] ?? "", rule, ...lines.slice(1)].map((line) => `| ${line} |`);
}

/** The JSON of the published benchmark; additional data is in `extra`. */
export function json(all: { ladder: Ladder; outcomes: Outcome[] }[]): string {
  return toJson(
    all.map(({ ladder, outcomes }) => ({
      testName: ladder.test,
      results: outcomes.map(({ tier, result, problem }) =>
        result === undefined
          ? { tier, connected: 0, errors: tier, latency: null, extra: { variant: ladder.variant, problem } }
          : {
              tier,
              connected: result.connections.open,
              errors: total(result.connections.failed) + total(result.connections.closed_early),
              durationSecs: result.figures.window_seconds,
              messagesSent: result.messages.sent,
              messagesReceived: result.messages.delivered,
              bytesSent: result.messages.bytes_sent,
              latency: publishedLatency(result),
              extra: { variant: ladder.variant, ...result },
            },
      ),
    })),
  );
}

/** Latency percentiles in milliseconds; a percentile without enough samples is `null`. */
function publishedLatency(result: TrialResult): Record<string, number | null> | null {
  const found = result.percentiles.response_ns ?? result.percentiles.handshake_ns;
  if (found === undefined) return null;
  return Object.fromEntries(
    Object.entries(found).map(([name, ns]) => [name.replace(".", "_"), ns === null ? null : ns / NS_PER_MS]),
  );
}

function latency(name: string): Column[] {
  return ["p50", "p95", "p99", "max"].map((percentile) => ({
    title: `${percentile} ms`,
    cell: (one) => milliseconds(one.percentiles[name]?.[percentile]),
  }));
}

/** Formats a rate; `≥` marks one that the generator limited, which is a lower bound of the service's rate. */
function atLeast(result: TrialResult, perSecond: number | null | undefined): string {
  return (result.bound_by === "generator" && typeof perSecond === "number" ? "≥ " : "") + rate(perSecond);
}

function rate(perSecond: number | null | undefined): string {
  return typeof perSecond !== "number" ? NOT_AVAILABLE : Math.round(perSecond).toLocaleString("en");
}

function fixed(value: number | null | undefined, digits: number): string {
  return typeof value !== "number" ? NOT_AVAILABLE : value.toFixed(digits);
}

function milliseconds(ns: number | null | undefined): string {
  return ns === null || ns === undefined ? NOT_AVAILABLE : (ns / NS_PER_MS).toPrecision(3);
}

function survival({ connections }: TrialResult): string {
  if (connections.open === 0) return NOT_AVAILABLE;
  return `${((100 * (connections.open - total(connections.closed_early))) / connections.open).toFixed(2)} %`;
}

function megabytes(result: TrialResult): string {
  const { delivered_per_second: perSecond } = result.figures;
  return typeof perSecond !== "number" ? NOT_AVAILABLE : ((perSecond * payloadBytes(result.message)) / 1e6).toFixed(1);
}

function payloadBytes(message: TrialResult["message"]): number {
  // The format is one that this program sends.
  return composer(message as WseMessage).compose(FIRST_SEQUENCE).length;
}

/** The sum of all counts. */
function total(counts: Record<string, number>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
