// Workers' results, added up: counts are sums, histograms are merged, nothing is averaged. Pure.

import { addUp, type Recorder } from "./recorder.ts";
import type { ConnectionCounts, MessageCounts, WindowCounts, WorkerBook, WorkerResult } from "./schemas.ts";

/** Counts by reason. */
export type Counts = Record<string, number>;

/** What all workers of a trial saw together. */
export interface Merged {
  connections: ConnectionCounts;
  messages: MessageCounts;
  /** Sums; the duration is the longest. */
  window: WindowCounts;
  histograms: Map<string, Recorder>;
  books: WorkerBook[];
}

/** Adds results up. */
export function merge(results: WorkerResult[]): Merged {
  const sum = (of: (result: WorkerResult) => number) => results.reduce((total, result) => total + of(result), 0);
  const sums = (of: (result: WorkerResult) => Counts) => addCounts(results.map(of));
  const messages = (name: Exclude<keyof MessageCounts, "dropped">) => sum((result) => result.messages[name]);
  const window = (name: keyof WindowCounts) => sum((result) => result.window[name] ?? 0);
  return {
    connections: {
      attempted: sum((result) => result.connections.attempted),
      open: sum((result) => result.connections.open),
      failed: sums((result) => result.connections.failed),
      closed_early: sums((result) => result.connections.closed_early),
    },
    messages: {
      due: messages("due"),
      sent: messages("sent"),
      delivered: messages("delivered"),
      late: messages("late"),
      wrong: messages("wrong"),
      dropped: sums((result) => result.messages.dropped),
      lost: messages("lost"),
      unsent: messages("unsent"),
      duplicates: messages("duplicates"),
      reorders: messages("reorders"),
      bytes_sent: messages("bytes_sent"),
      bytes_received: messages("bytes_received"),
    },
    window: {
      duration_ns: Math.max(0, ...results.map((result) => result.window.duration_ns)),
      due: window("due"),
      sent: window("sent"),
      replies: window("replies"),
      answered: window("answered"),
      writes: window("writes"),
      cpu_ns: window("cpu_ns"),
    },
    histograms: addUp(results.map((result) => result.histograms)),
    books: results.flatMap((result) => result.books ?? []),
  };
}

/** Sums by reason. */
export function addCounts(all: Counts[]): Counts {
  const sums: Counts = {};
  for (const counts of all) {
    for (const [reason, count] of Object.entries(counts)) sums[reason] = (sums[reason] ?? 0) + count;
  }
  return sums;
}

/** All counts of a kind together. */
export function total(counts: Counts): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
