// Reads a service: its counters from the metrics port (services/README.md), its CPU and memory from the kernel.

import { monotonicNs, NS_PER_MS, unixNs, until } from "./clock.ts";
import { fromJson, toJson } from "./json.ts";
import { allowedCpus, listenerOf, usage } from "./machine.ts";
import type { ConnectionBook, ConnectionBooks, Reading, ServiceStats } from "./schemas.ts";

const REQUEST_TIMEOUT_MS = 10_000;
const PAUSE_NS = 20 * NS_PER_MS;
/** A service whose counters haven't changed for this time has settled, even if messages are missing. */
const SETTLED_NS = 1000 * NS_PER_MS;

/** A client of a service's metrics port. */
export class Service {
  private readonly url: string;
  private readonly pid: number | undefined;
  private atRestBytes: number | undefined;
  /** The cursor of the last reading of the connections' books; empty for a service without cursors. */
  private cursor = "";

  private constructor(url: string, pid: number | undefined) {
    this.url = url;
    this.pid = pid;
  }

  /** Connects to a service's metrics port; throws an error that says what to check when it doesn't answer. */
  static async find(url: string): Promise<Service> {
    const { hostname, port } = new URL(url);
    const isLocal = ["127.0.0.1", "localhost", "[::1]"].includes(hostname);
    const service = new Service(url.replace(/\/$/, ""), isLocal ? listenerOf(Number(port)) : undefined);
    await service.read();
    return service;
  }

  /** The CPUs on which the service may run; empty when unknown. */
  cpus(): number[] {
    return this.pid === undefined ? [] : allowedCpus(this.pid);
  }

  /** Takes one reading. Time and CPU are the mean of before the request and after the response. */
  async read(): Promise<Reading> {
    const [requestedNs, before] = [unixNs(), this.pid === undefined ? undefined : usage(this.pid)];
    const stats = await this.get<ServiceStats>("/stats");
    const [respondedNs, after] = [unixNs(), this.pid === undefined ? undefined : usage(this.pid)];
    return {
      unix_ns: Math.round((requestedNs + respondedNs) / 2),
      pid: after === undefined ? null : (this.pid ?? null),
      cpu_ns: before && after ? Math.round((before.cpuNs + after.cpuNs) / 2) : null,
      rss_bytes: after?.rssBytes ?? null,
      cpu_limit: after === undefined ? null : this.cpus().length,
      throttled_periods: null,
      periods: null,
      stats,
    };
  }

  /** The service's memory in bytes before its first connection: the lowest value before any trial of this run. */
  atRest(before: Reading): number | undefined {
    const observed = [this.atRestBytes, before.rss_bytes].filter((value) => typeof value === "number");
    if (observed.length > 0) this.atRestBytes = Math.min(...observed);
    return this.atRestBytes;
  }

  /** Takes a reading at a time of the monotonic clock, in nanoseconds. */
  async readAt(momentNs: number): Promise<Reading> {
    await until(momentNs);
    return this.read();
  }

  /**
   * Waits until the service has received `expected` more messages than at `before` and all are accounted for. An
   * application counts a message shortly after it takes it from the queue. Also returns when the counters stop
   * changing, and after `timeoutNs`.
   */
  async settled(before: Reading, expected: number, timeoutNs: number): Promise<Reading> {
    const deadlineNs = monotonicNs() + timeoutNs;
    let [last, sinceNs] = ["", monotonicNs()];
    for (;;) {
      const now = await this.read();
      const { messages, application, connections } = now.stats;
      const isCounted = (application?.delivered ?? messages.delivered) >= messages.delivered;
      const received = messages.received - before.stats.messages.received;
      const counters = toJson([messages, application, connections]);
      if (counters !== last) [last, sinceNs] = [counters, monotonicNs()];
      const isSettled = monotonicNs() - sinceNs > SETTLED_NS;
      if ((received >= expected && messages.queued === 0 && isCounted) || isSettled || monotonicNs() >= deadlineNs)
        return now;
      await until(monotonicNs() + PAUSE_NS);
    }
  }

  /**
   * The books of the open connections, and of those that have closed since the last reading; null when the service has
   * only totals. A connection that closed during the last reading may be returned again.
   */
  async connections(): Promise<ConnectionBook[] | null> {
    const response = await this.get<ConnectionBooks | null>(`/stats/connections?since=${this.cursor}`, 404);
    this.cursor = response?.cursor ?? "";
    return response?.connections ?? null;
  }

  private async get<T>(path: string, absent?: number): Promise<T> {
    const url = `${this.url}${path}`;
    let response: Response;
    try {
      response = await fetch(url, { signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
    } catch (error) {
      throw new Error(`failed to read ${url}: ${reason(error)}; is --stats-url the service's metrics port?`);
    }
    if (response.status === absent) return null as T;
    if (!response.ok) throw new Error(`failed to read ${url}: it answers ${response.status}`);
    return fromJson<T>(await response.text());
  }
}

function reason(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}
