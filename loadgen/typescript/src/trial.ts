// What a workload has at hand during one trial in one worker process: its connections, its clocks, its counts.

import { monotonicNs } from "./clock.ts";
import { ConnectError, type Connection, connect, type Listener, type Target } from "./connection.ts";
import { ownCpuNs, ownWrites } from "./machine.ts";
import type { WseMessage } from "./payload.ts";
import { WindowRecorder } from "./recorder.ts";
import type * as schemas from "./schemas.ts";
import type { ConnectionCounts, LoadClosed, LoadOpen, Terms } from "./schemas.ts";

/** How this program offers load: never at the pace of sessions, and nothing left to a default. */
export type Offered = Required<LoadOpen> | Required<LoadClosed>;

/** What one worker process does in one trial. */
export interface Assignment extends schemas.Assignment {
  load: Offered;
  message: WseMessage;
}

/** A kind of load. */
export interface Workload {
  /** On which terms it is judged. */
  readonly terms: Terms;
  /** Whether the application sums up the numbers of the messages; those that the service answers never reach it. */
  readonly numbered: boolean;
  /** Offers the load from the start until the window ends or the work is done, marks the window's edges, and drains. */
  run(trial: Trial): Promise<void>;
}

/** Counters at a moment. */
export interface Mark {
  atNs: number;
  due: number;
  sent: number;
  replies: number;
  writes: number;
  cpuNs: number;
}

/** Connections that share one address of this machine: the kernel's default range of ports has 28 232. */
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
  /** Pongs that answer no ping that waits. */
  duplicates = 0;
  /** Messages handed to sockets by now; floods know better than what was offered. */
  written: () => number = () => this.offered();
  onMessage: (connection: Connection, data: Buffer, binary: boolean) => void = () => {};
  private readonly target: Target;

  constructor(assignment: Assignment, token: string) {
    this.assignment = assignment;
    this.target = { address: assignment.address, query: query(assignment.message), token };
  }

  /** The load starts at this moment of the monotonic clock. */
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

  /** Messages offered on all connections. */
  offered(): number {
    return this.connections.reduce((sum, one) => sum + one.offered, 0);
  }

  /** Notes all counters: once at the window's start, once at its end. */
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

  /** Opens all connections of the assignment, with a bounded number of attempts in flight; `opened` gets each duration. */
  async openAll(opened: (durationNs: number, atNs: number) => void = () => {}): Promise<void> {
    const { load, connections, workers } = this.assignment;
    const all = load.model === "closed" ? load.in_flight : OPEN_IN_FLIGHT;
    const inFlight = Math.min(connections, Math.max(1, Math.floor(all / workers)));
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

  private async openOne(place: number): Promise<Connection | undefined> {
    const index = this.assignment.first_connection + place;
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

/** Attempts in flight over all workers where the load says nothing of it. */
const OPEN_IN_FLIGHT = 256;

/** Adds one under a reason. */
export function count(counts: Record<string, number>, reason: string): void {
  counts[reason] = (counts[reason] ?? 0) + 1;
}

function query(message: WseMessage): string {
  const format = message.format === "msgpack" ? "format=msgpack" : "compression=false";
  return `${format}&protocol_version=1`;
}

/** The source address of a connection: loopback has many, and each has its own ports. */
export function localAddress(assignment: Assignment, index: number): string | undefined {
  const total = assignment.trial.tier;
  if (total <= CONNECTIONS_PER_ADDRESS || !assignment.address.startsWith("127.")) return undefined;
  return `127.0.0.${1 + Math.floor(index / CONNECTIONS_PER_ADDRESS)}`;
}
