// `connection-storm`: opens connections inside the window, with a limit on handshakes in flight and without pauses. A
// handshake lasts from its first SYN until `server_ready` was received and `client_hello` sent.

import type { Workload } from "../trial.ts";

export const storm: Workload = {
  terms: { witness: "reply", opens_in_window: true },
  numbered: false,
  async run(trial) {
    trial.mark();
    await trial.openAll((durationNs, atNs) => trial.recorder.record("handshake_ns", durationNs, atNs));
    trial.mark();
  },
};
