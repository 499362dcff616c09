// `throughput`, `size-matrix`, `format-comparison`: every connection sends as fast as its socket takes it.
//
// A connection has at most one burst in this process: the next follows when the kernel has accepted the last. So the
// counters show what was sent, and not what waits in a buffer of this process.

import { monotonicNs, NS_PER_MS } from "../clock.ts";
import type { Connection } from "../connection.ts";
import { type Composer, composer } from "../payload.ts";
import type { Trial, Workload } from "../trial.ts";

const BURST_MESSAGES = 64;
const BURST_BYTES = 65_536;
/** Longest turn without handling timers and sockets: 0.5 % of the shortest reasonable window. */
const TURN_NS = 5 * NS_PER_MS;

export const flood: Workload = {
  terms: { witness: "application" },
  numbered: true,
  run: (trial) => new Flood(trial).run(),
};

class Flood {
  private readonly trial: Trial;
  private readonly composer: Composer;
  private readonly burst: number;
  private readonly coalesce: number;
  private readonly ready: Connection[];
  /** Messages of each connection that the kernel has not accepted yet, as far as this process knows. */
  private readonly pending = new Map<Connection, number>();
  private wake: () => void = () => {};

  constructor(trial: Trial) {
    const { message } = trial.assignment;
    this.trial = trial;
    this.composer = composer(message);
    this.coalesce = message.coalesce;
    const fitting = Math.max(1, Math.min(BURST_MESSAGES, Math.floor(BURST_BYTES / message.size_bytes)));
    this.burst = Math.max(fitting, message.coalesce);
    this.ready = trial.connections.filter((connection) => connection.open);
    trial.written = () =>
      trial.offered() - [...this.pending].reduce((sum, [connection, count]) => sum + waiting(connection, count), 0);
  }

  async run(): Promise<void> {
    const { trial } = this;
    await this.pumpUntil(trial.windowStartNs);
    trial.mark();
    await this.pumpUntil(trial.windowEndNs);
    trial.mark();
    await this.drain(trial.windowEndNs + trial.assignment.drain_ns);
  }

  private async pumpUntil(endNs: number): Promise<void> {
    while (monotonicNs() < endNs) {
      const turnEndsNs = Math.min(endNs, monotonicNs() + TURN_NS);
      // Each ready connection gets its first burst before any gets its second.
      for (let remaining = this.ready.length; remaining > 0 && monotonicNs() < turnEndsNs; remaining--) {
        const connection = this.ready.shift();
        if (connection?.open) this.send(connection);
      }
      if (this.ready.length > 0) await new Promise<void>((resolve) => setImmediate(resolve));
      else await this.wakeOrDeadline(endNs);
    }
  }

  private send(connection: Connection): void {
    const { ws, socket } = connection;
    const { binary } = this.composer;
    this.pending.set(connection, this.burst);
    for (let sent = 0; sent < this.burst; sent++) {
      if (this.coalesce > 1 && sent % this.coalesce === 0) socket.cork();
      const last = sent === this.burst - 1;
      ws.send(
        this.composer.compose(connection.next++),
        { binary },
        last ? (error) => this.burstWritten(connection, error) : undefined,
      );
      if (this.coalesce > 1 && (last || sent % this.coalesce === this.coalesce - 1)) socket.uncork();
    }
  }

  /** The kernel accepted a burst, or the connection closed: messages that are still in this process are then unsent. */
  private burstWritten(connection: Connection, error: Error | null | undefined): void {
    const count = this.pending.get(connection) ?? 0;
    this.pending.delete(connection);
    if (error) connection.unsent += count;
    else this.ready.push(connection);
    this.wake();
  }

  private async wakeOrDeadline(momentNs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, Math.max(0, (momentNs - monotonicNs()) / NS_PER_MS));
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.wake = () => {};
  }

  private async drain(deadlineNs: number): Promise<void> {
    while (this.pending.size > 0 && monotonicNs() < deadlineNs) await this.wakeOrDeadline(deadlineNs);
    for (const [connection, count] of this.pending) connection.unsent += waiting(connection, count);
  }
}

/** Messages of a burst that are still in this process, including one that was sent in part. */
function waiting(connection: Connection, burst: number): number {
  const perMessage = connection.bytesSent / Math.max(1, connection.offered);
  return Math.min(burst, Math.ceil(connection.ws.bufferedAmount / perMessage));
}
