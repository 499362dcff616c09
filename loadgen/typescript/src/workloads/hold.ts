// `sustained-hold` and the probes of `connection-limit`: connections are held open, and each is pinged on a schedule
// that is fixed before the start and independent of the service. Latency counts from when a ping was due.

import { monotonicNs, NS_PER_SECOND, until } from "../clock.ts";
import type { Connection } from "../connection.ts";
import { ping, pongNumber } from "../payload.ts";
import type { Trial, Workload } from "../trial.ts";

export const hold: Workload = {
  terms: { witness: "reply" },
  numbered: false,
  run: (trial) => new Hold(trial).run(),
};

interface Outstanding {
  dueNs: number;
  sentNs: number;
}

class Hold {
  private readonly trial: Trial;
  private readonly outstanding = new Map<Connection, Map<number, Outstanding>>();
  private unanswered = 0;

  constructor(trial: Trial) {
    this.trial = trial;
    trial.onMessage = (connection, data, binary) => {
      if (!binary) this.handlePong(connection, data.toString());
    };
  }

  async run(): Promise<void> {
    const { trial } = this;
    const { load } = trial.assignment;
    const rate = load.model === "open" ? load.rate_per_second : 0;
    const everyNs = NS_PER_SECOND / rate;
    await until(trial.windowStartNs);
    trial.mark();
    // Message n goes to connection n modulo their number, so each is pinged once per round.
    const total = trial.connections.length === 0 ? 0 : Math.floor(trial.assignment.window_ns / everyNs);
    for (let n = 0; n < total; n++) {
      const dueNs = trial.windowStartNs + n * everyNs;
      if (dueNs > monotonicNs()) await until(dueNs);
      const connection = trial.connections[n % trial.connections.length];
      if (connection) this.send(connection, dueNs);
    }
    await until(trial.windowEndNs);
    trial.mark();
    const deadlineNs = trial.windowEndNs + trial.assignment.drain_ns;
    while (this.unanswered > 0 && monotonicNs() < deadlineNs) await until(monotonicNs() + NS_PER_SECOND / 100);
  }

  private send(connection: Connection, dueNs: number): void {
    const number = connection.next++;
    if (!connection.open) {
      connection.unsent++;
      return;
    }
    const sentNs = monotonicNs();
    const pingsOfConnection = this.outstanding.get(connection) ?? new Map<number, Outstanding>();
    pingsOfConnection.set(number, { dueNs, sentNs });
    this.outstanding.set(connection, pingsOfConnection);
    this.unanswered++;
    connection.ws.send(ping(number));
    this.trial.recorder.record("delay_ns", sentNs - dueNs, sentNs);
  }

  private handlePong(connection: Connection, text: string): void {
    const number = pongNumber(text);
    if (number === undefined) return;
    const nowNs = monotonicNs();
    const pingsOfConnection = this.outstanding.get(connection);
    const sent = pingsOfConnection?.get(number);
    if (sent === undefined) {
      this.trial.duplicates++;
      return;
    }
    pingsOfConnection?.delete(number);
    this.unanswered--;
    connection.replies++;
    this.trial.replies++;
    this.trial.recorder.record("response_ns", nowNs - sent.dueNs, nowNs);
    this.trial.recorder.record("service_ns", nowNs - sent.sentNs, nowNs);
  }
}
