// `connection-storm`: connections are opened inside the window, with a bounded number of attempts in flight and no
// pauses. An attempt lasts from its first SYN until the service said that it is ready and was greeted.

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
