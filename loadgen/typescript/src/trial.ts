// The state of one trial in one worker process: its assignment, connections, clocks and counters.

import { monotonicNs } from "./clock.ts";
import { ConnectError, type Connection, connect, type Listener, type Target } from "./connection.ts";
import { ownCpuNs, ownWrites } from "./machine.ts";
import type { WseMessage } from "./payload.ts";
import { WindowRecorder } from "./recorder.ts";
import type * as schemas from "./schemas.ts";
import type { ConnectionCounts, LoadClosed, LoadOpen, Terms } from "./schemas.ts";

/** The load models of this program, with all fields set; it has no sessions. */
export type Offered = Required<LoadOpen> | Required<LoadClosed>;

/** What one worker process does in one trial. Times are in nanoseconds. */
export interface Assignment extends schemas.Assignment {
  load: Offered;
  message: WseMessage;
}

/** The implementation of a workload. */
export interface Workload {
  /** The terms by which the workload is judged. */
  readonly terms: Terms;
  /** Whether messages reach the application, which sums up their numbers; the service answers pings itself. */
  readonly numbered: boolean;
  /** Generates the load until the window ends or the work is done, marks the window's edges, and drains. */
  run(trial: Trial): Promise<void>;
}

/** Counters at an edge of the window. */
export interface Mark {
  atNs: number;
  due: number;
  sent: number;
  replies: number;
  writes: number;
  cpuNs: number;
}

/** Most connections from one source address: the kernel's default range has 28 232 ports. */
export const CONNECTIONS_PER_ADDRESS = 28_000;

export class Trial implements Listener {
  readonly assignment: Assignment;
  readonly connections: Connection[] = [];
  readonly counts: ConnectionCounts = { attempted: 0, open: 0, failed: {}, closed_early: {} };
  readonly marks: Mark[] = [];
  startNs = 0;
  windowStartNs = 0;
  windowEndNs = 0;
  recorder = new WindowRecorder(0);
  replies = 0;
  /** Pongs without a waiting ping. */
  duplicates = 0;
  /** Number of messages handed to sockets; floods replace it by a more exact count than `offered`. */
  written: () => number = () => this.offered();
  onMessage: (connection: Connection, data: Buffer, binary: boolean) => void = () => {};
  private readonly target: Target;

  constructor(assignment: Assignment, token: string) {
    this.assignment = assignment;
    this.target = { address: assignment.address, query: query(assignment.message), token };
  }

  /** Sets the start of the load, in nanoseconds of the monotonic clock, and the window that follows from it. */
  begin(startNs: number): void {
    this.startNs = startNs;
    this.windowStartNs = startNs + this.assignment.warmup_ns;
    this.windowEndNs = this.windowStartNs + this.assignment.window_ns;
    this.recorder = new WindowRecorder(this.windowStartNs);
  }

  message(connection: Connection, data: Buffer, binary: boolean): void {
    this.onMessage(connection, data, binary);
  }

  closed(_connection: Connection, reason: string): void {
    count(this.counts.closed_early, reason);
  }

  /** Number of messages offered on all connections. */
  offered(): number {
    return this.connections.reduce((sum, one) => sum + one.offered, 0);
  }

  /** Records all counters, once at each edge of the window. */
  mark(): void {
    this.marks.push({
      atNs: monotonicNs(),
      due: this.offered(),
      sent: this.written(),
      replies: this.replies,
      writes: ownWrites(),
      cpuNs: ownCpuNs(),
    });
  }

  /** Opens all connections with a limit on handshakes in flight; `opened` gets each one's duration and end time. */
  async openAll(opened: (durationNs: number, atNs: number) => void = () => {}): Promise<void> {
    const { load, connections, workers } = this.assignment;
    const limit = load.model === "closed" ? load.in_flight : OPEN_IN_FLIGHT;
    const inFlight = Math.min(connections, Math.max(1, Math.floor(limit / workers)));
    let next = 0;
    const opener = async () => {
      while (next < connections) {
        const startedNs = monotonicNs();
        const connection = await this.openOne(next++);
        const nowNs = monotonicNs();
        if (connection) opened(nowNs - startedNs, nowNs);
      }
    };
    await Promise.all(Array.from({ length: inFlight }, opener));
  }

  private async openOne(offset: number): Promise<Connection | undefined> {
    const index = this.assignment.first_connection + offset;
    this.counts.attempted++;
    try {
      const connection = await connect(this.target, index, localAddress(this.assignment, index), this);
      this.counts.open++;
      this.connections.push(connection);
      return connection;
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      count(this.counts.failed, error.message);
      return undefined;
    }
  }
}

/** Handshakes in flight over all workers when the load doesn't set a number. */
const OPEN_IN_FLIGHT = 256;

/** Increments the count of a reason. */
export function count(counts: Record<string, number>, reason: string): void {
  counts[reason] = (counts[reason] ?? 0) + 1;
}

function query(message: WseMessage): string {
  const format = message.format === "msgpack" ? "format=msgpack" : "compression=false";
  return `${format}&protocol_version=1`;
}

/** The source address for more connections than one address has ports; loopback has many addresses. */
export function localAddress(assignment: Assignment, index: number): string | undefined {
  const total = assignment.trial.tier;
  if (total <= CONNECTIONS_PER_ADDRESS || !assignment.address.startsWith("127.")) return undefined;
  return `127.0.0.${1 + Math.floor(index / CONNECTIONS_PER_ADDRESS)}`;
}
