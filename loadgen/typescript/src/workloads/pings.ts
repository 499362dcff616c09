// `ping-latency`: a fixed number of pings on each connection, each sent after the reply to the last, all connections at
// once. A ping has no timeout but the trial's limit, so a slow reply counts with its whole time.

import { monotonicNs, until } from "../clock.ts";
import type { Connection } from "../connection.ts";
import { ping, pongNumber } from "../payload.ts";
import type { Trial, Workload } from "../trial.ts";

export const pings: Workload = {
  terms: { witness: "reply", late_by: "response" },
  numbered: false,
  async run(trial) {
    const { load } = trial.assignment;
    const pingsPerConnection = (load.model === "closed" && load.messages_per_connection) || 1;
    trial.mark();
    const done = Promise.all(trial.connections.map((connection) => pingAll(trial, connection, pingsPerConnection)));
    trial.onMessage = (connection, data, binary) => {
      if (!binary) handlePong(trial, connection, data.toString());
    };
    await Promise.race([done, until(trial.windowEndNs)]);
    trial.mark();
  },
};

interface Waiting {
  number: number;
  sentNs: number;
  resolve: () => void;
}

const waiting = new WeakMap<Connection, Waiting>();

async function pingAll(trial: Trial, connection: Connection, pingsPerConnection: number): Promise<void> {
  for (let sent = 0; sent < pingsPerConnection && connection.open && monotonicNs() < trial.windowEndNs; sent++) {
    await new Promise<void>((resolve) => {
      const number = connection.next++;
      waiting.set(connection, { number, sentNs: monotonicNs(), resolve });
      connection.ws.once("close", resolve);
      connection.ws.send(ping(number));
    });
  }
}

function handlePong(trial: Trial, connection: Connection, text: string): void {
  const number = pongNumber(text);
  if (number === undefined) return;
  const nowNs = monotonicNs();
  const expected = waiting.get(connection);
  if (expected?.number !== number) {
    trial.duplicates++;
    return;
  }
  waiting.delete(connection);
  connection.replies++;
  trial.replies++;
  // In a closed loop a ping is due when it is sent.
  trial.recorder.record("response_ns", nowNs - expected.sentNs, nowNs);
  trial.recorder.record("service_ns", nowNs - expected.sentNs, nowNs);
  connection.ws.removeListener("close", expected.resolve);
  expected.resolve();
}
