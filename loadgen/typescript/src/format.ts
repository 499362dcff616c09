// What leaves this program: the types of loadgen/bench-format as TypeScript, field by field (docs/FORMAT.md).
//
// Sums of sequence numbers use all 64 bits and are therefore bigint; all other numbers stay below 2^53, or are unix
// nanoseconds, which JavaScript rounds to 256 ns.

export const SCHEMA = 2;

export type Counts = Record<string, number>;

export interface TrialId {
  service: string;
  workload: string;
  variant: string;
  tier: number;
  process: number;
  repeat: number;
}

export type Load =
  | { model: "open"; rate_per_second: number; arrivals: "constant" }
  | { model: "closed"; messages_per_connection: number | null; in_flight: number };

export type Format = "json" | "msgpack" | "compressed";

export interface Message {
  format: Format;
  size_bytes: number;
  coalesce: number;
}

/** What one worker process does in one trial. Times in nanoseconds. */
export interface Assignment {
  run: string;
  trial: TrialId;
  attempt: number;
  worker: number;
  workers: number;
  address: string;
  connections: number;
  first_connection: number;
  seed: number;
  load: Load;
  message: Message;
  warmup_ns: number;
  window_ns: number;
  drain_ns: number;
}

export type Witness = "application" | "reply" | "none";

export interface Histogram {
  v2: string;
  count: number;
  overflow: number;
}

export interface ConnectionCounts {
  attempted: number;
  open: number;
  failed: Counts;
  closed_early: Counts;
}

export interface MessageCounts {
  due: number;
  sent: number;
  delivered: number;
  late: number;
  wrong: number;
  dropped: Counts;
  lost: number;
  unsent: number;
  duplicates: number;
  reorders: number;
  bytes_sent: number;
  bytes_received: number;
}

/** The measured window alone. `sent` is what was handed to sockets in it: never a throughput figure. */
export interface WindowCounts {
  duration_ns: number;
  due: number;
  sent: number;
  replies: number;
  answered: number;
  writes: number;
  cpu_ns: number;
}

export interface Interval {
  start_ns: number;
  duration_ns: number;
  histograms: Record<string, Histogram>;
}

export interface WorkerBook {
  id: string;
  sent: number;
  sequence_sum: bigint;
  unnumbered: number;
  replies: number;
}

export interface WorkerEvidence {
  program: string;
  start_at_unix_ns: number;
  start_skew_ns: number;
  clock_offset_ns: number;
  clock_uncertainty_ns: number;
  clock_step_ns: number;
  cpu_limit: number;
  cpu_seconds: number;
  throttled_periods: number | null;
  periods: number | null;
  throttling: string;
  rss_bytes: number;
  nodelay: boolean;
  congestion_control: string;
}

export interface Environment {
  host: string;
  kernel: string;
  cpu_model: string;
  cpus: number;
  cpus_allowed: string;
  memory_bytes: number;
  virtualised: boolean;
  congestion_control: string;
  somaxconn: string;
  port_range: string;
  tcp_rmem: string;
  tcp_wmem: string;
  open_files: number;
}

export interface WorkerResult {
  schema: number;
  run: string;
  trial: TrialId;
  attempt: number;
  worker: number;
  witness: Witness;
  connections: ConnectionCounts;
  messages: MessageCounts;
  window: WindowCounts;
  histograms: Record<string, Histogram>;
  intervals: Interval[];
  books: WorkerBook[];
  evidence: WorkerEvidence;
  environment: Environment;
}

export interface ApplicationStats {
  delivered: number;
  sequence_sum: bigint;
  unnumbered: number;
}

export interface ServiceStats {
  service: string;
  version: string;
  uptime_seconds: number;
  connections: { accepted: number; open: number; closed: Counts; rejected: Counts };
  messages: {
    received: number;
    consumed: number;
    delivered: number;
    dropped: Counts;
    queued: number;
    malformed: number;
    sent: number;
    send_dropped: Counts;
  };
  bytes: { received: number; sent: number };
  application?: ApplicationStats | null;
}

export interface ConnectionBook {
  id: string;
  open: boolean;
  received: number;
  consumed: number;
  dropped: number;
  application?: ApplicationStats | null;
}

/** One reading of the service. Where it runs on another machine, nobody knows its process and what that uses. */
export interface Reading {
  unix_ns: number;
  pid: number | null;
  cpu_ns: number | null;
  rss_bytes: number | null;
  cpu_limit: number | null;
  throttled_periods: null;
  periods: null;
  stats: ServiceStats;
}

export interface ServiceReadings {
  before: Reading | null;
  window_start: Reading | null;
  window_end: Reading | null;
  after: Reading | null;
}

export interface Equation {
  name: string;
  left: number | bigint;
  right: number | bigint;
  terms: [string, number | bigint][];
}

export interface Books {
  equations: Equation[];
  connections: { compared: number; mismatched: number; examples: string[] } | null;
}

export type ReasonKind =
  | "unaccounted"
  | "workers_missing"
  | "start_skew"
  | "generator_late"
  | "generator_cpu"
  | "send_rate"
  | "service_restarted"
  | "clock_step"
  | "reading_late"
  | "window_short";

export interface Reason {
  kind: ReasonKind;
  detail: string;
}

export type Validity = { state: "valid" } | { state: "invalid"; reasons: Reason[] };

export type BoundBy = "service" | "generator" | "both" | "neither";

/** Rates and costs of the window; a figure that makes no sense or could not be had is left out. */
export interface Figures {
  window_seconds: number;
  due_per_second?: number;
  written_per_second?: number;
  received_per_second?: number;
  delivered_per_second?: number;
  dropped_per_second?: number;
  accepted_per_second?: number;
  messages_per_write?: number;
  service_cpu_seconds?: number;
  worker_cpu_seconds?: number;
  service_cpu_share?: number;
  worker_cpu_share?: number;
  service_cpu_seconds_per_million?: number;
  worker_cpu_seconds_per_million?: number;
  service_rss_bytes?: number;
  service_bytes_per_connection?: number;
  failed_share?: number;
  replies_per_second?: number;
}

export interface TrialResult {
  schema: number;
  run: string;
  trial: TrialId;
  attempt: number;
  started_at_unix_ns: number;
  load: Load;
  message: Message;
  witness: Witness;
  validity: Validity;
  verdict: null;
  bound_by: BoundBy | null;
  connections: ConnectionCounts;
  messages: MessageCounts;
  figures: Figures;
  percentiles: Record<string, Record<string, number | null>>;
  histograms: Record<string, Histogram>;
  books: Books;
  service: ServiceReadings;
  workers: WorkerEvidence[];
  reproduce: string;
}

const MARK = "\u0000";

/** JSON in which a bigint is a plain number with all of its digits. */
export function toJson(value: unknown): string {
  const marked = JSON.stringify(
    value,
    (_, one: unknown) => (typeof one === "bigint" ? `${MARK}${one}${MARK}` : one),
    1,
  );
  return marked.replace(/"\\u0000(\d+)\\u0000"/g, "$1");
}

/** A service's JSON: sums of sequence numbers keep all of their digits. */
export function fromServiceJson<T>(text: string): T {
  const quoted = text.replace(/("sequence_sum"\s*:\s*)(\d+)/g, '$1"$2"');
  return JSON.parse(quoted, (key, one: unknown) => (key === "sequence_sum" ? BigInt(one as string) : one)) as T;
}
