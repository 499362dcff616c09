// The service's side: its counters from the metrics port (services/README.md), its CPU and memory from the kernel.

import { monotonicNs, NS_PER_MS, unixNs, until } from "./clock.ts";
import { fromJson, toJson } from "./json.ts";
import { allowedCpus, listenerOf, usage } from "./machine.ts";
import type { ConnectionBook, Reading, ServiceStats } from "./schemas.ts";

const PATIENCE_MS = 10_000;
const PAUSE_NS = 20 * NS_PER_MS;
/** A service whose counters stood still for so long has settled, whatever they say. */
const STILL_NS = 1000 * NS_PER_MS;

/** A service's metrics port. */
export class Service {
  private readonly url: string;
  private readonly pid: number | undefined;
  private atRestBytes: number | undefined;

  private constructor(url: string, pid: number | undefined) {
    this.url = url;
    this.pid = pid;
  }

  /** Finds the metrics port of a service; an error that says how where there is none. */
  static async find(url: string): Promise<Service> {
    const { hostname, port } = new URL(url);
    const here = ["127.0.0.1", "localhost", "[::1]"].includes(hostname);
    const service = new Service(url.replace(/\/$/, ""), here ? listenerOf(Number(port)) : undefined);
    await service.read();
    return service;
  }

  /** CPUs on which the service may run; none where that isn't known. */
  cpus(): number[] {
    return this.pid === undefined ? [] : allowedCpus(this.pid);
  }

  /** One reading. Its counters are taken somewhere between question and answer, so time and CPU are the middle of both. */
  async read(): Promise<Reading> {
    const [askedNs, before] = [unixNs(), this.pid === undefined ? undefined : usage(this.pid)];
    const stats = await this.get<ServiceStats>("/stats");
    const [answeredNs, after] = [unixNs(), this.pid === undefined ? undefined : usage(this.pid)];
    return {
      unix_ns: Math.round((askedNs + answeredNs) / 2),
      pid: after === undefined ? null : (this.pid ?? null),
      cpu_ns: before && after ? Math.round((before.cpuNs + after.cpuNs) / 2) : null,
      rss_bytes: after?.rssBytes ?? null,
      cpu_limit: after === undefined ? null : this.cpus().length,
      throttled_periods: null,
      periods: null,
      stats,
    };
  }

  /** Its memory before its first connection, in bytes: the least that it had before any trial of this run. */
  atRest(before: Reading): number | undefined {
    const seen = [this.atRestBytes, before.rss_bytes].filter((one) => typeof one === "number");
    if (seen.length > 0) this.atRestBytes = Math.min(...seen);
    return this.atRestBytes;
  }

  /** A reading at a moment of the monotonic clock. */
  async readAt(momentNs: number): Promise<Reading> {
    await until(momentNs);
    return this.read();
  }

  /**
   * Waits until `expected` messages more than at `before` came in and reached the application's books, at most
   * `patienceNs`. What an application took from the queue it counts a moment later. Counters that stand still are waited
   * for no longer.
   */
  async settled(before: Reading, expected: number, patienceNs: number): Promise<Reading> {
    const deadlineNs = monotonicNs() + patienceNs;
    let [last, sinceNs] = ["", monotonicNs()];
    for (;;) {
      const now = await this.read();
      const { messages, application, connections } = now.stats;
      const counted = (application?.delivered ?? messages.delivered) >= messages.delivered;
      const came = messages.received - before.stats.messages.received;
      const counters = toJson([messages, application, connections]);
      if (counters !== last) [last, sinceNs] = [counters, monotonicNs()];
      const isStill = monotonicNs() - sinceNs > STILL_NS;
      if ((came >= expected && messages.queued === 0 && counted) || isStill || monotonicNs() >= deadlineNs) return now;
      await until(monotonicNs() + PAUSE_NS);
    }
  }

  /** The books of each connection; nothing where the service keeps totals only. Closed ones are handed out once. */
  async connections(): Promise<ConnectionBook[] | null> {
    const answer = await this.get<{ connections: ConnectionBook[] } | null>("/stats/connections", 404);
    return answer?.connections ?? null;
  }

  private async get<T>(path: string, absent?: number): Promise<T> {
    const url = `${this.url}${path}`;
    let answer: Response;
    try {
      answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) });
    } catch (error) {
      throw new Error(`failed to read ${url}: ${reason(error)}; is --stats-url the service's metrics port?`);
    }
    if (answer.status === absent) return null as T;
    if (!answer.ok) throw new Error(`failed to read ${url}: it answers ${answer.status}`);
    return fromJson<T>(await answer.text());
  }
}

function reason(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}
