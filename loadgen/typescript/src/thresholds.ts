// When a trial is invalid, and what counts as bound by a side.

/** The thresholds, as a plan has them (`Thresholds` of bench-format) and with its defaults. */
export const THRESHOLDS = {
  start_skew_ms: 50,
  delay_p99_ms: 5,
  worker_cpu_share: 0.9,
  throttled_share: 0.01,
  send_share: 0.995,
  bound_share: 0.9,
};
