// The equations of a trial, from both sides' counters after the drain. Pure. They are those of `ladder`, by the same
// names: docs/METHODOLOGY.md.

import type { Counts } from "./merge.ts";
import { type Merged, total } from "./merge.ts";
import type {
  ApplicationStats,
  Books,
  ConnectionBook,
  Equation,
  MessageCounts,
  ServiceStats,
  Witness,
  WorkerBook,
} from "./schemas.ts";

const NAMED_MISMATCHES = 10;

/** What a service counted between two readings. */
export interface Delta {
  accepted: number;
  received: number;
  consumed: number;
  delivered: number;
  dropped: Counts;
  /** Still waiting for the application, at the later reading. */
  queued: number;
  application: ApplicationStats | null;
}

/** Later minus earlier. */
export function between(earlier: ServiceStats, later: ServiceStats): Delta {
  const [before, after] = [earlier.messages, later.messages];
  const grown = Object.entries(after.dropped).map(([reason, count]) => [reason, count - (before.dropped[reason] ?? 0)]);
  const [first, last] = [earlier.application, later.application];
  return {
    accepted: later.connections.accepted - earlier.connections.accepted,
    received: after.received - before.received,
    consumed: after.consumed - before.consumed,
    delivered: after.delivered - before.delivered,
    dropped: Object.fromEntries(grown.filter(([, count]) => Number(count) > 0)),
    queued: after.queued,
    application: last
      ? {
          delivered: last.delivered - (first?.delivered ?? 0),
          sequence_sum: BigInt.asUintN(64, BigInt(last.sequence_sum) - BigInt(first?.sequence_sum ?? 0)),
          unnumbered: last.unnumbered - (first?.unnumbered ?? 0),
        }
      : null,
  };
}

/** Who says that messages arrived: an application that isn't there has seen nothing. */
export function witness(claimed: Witness, delta: Delta | null): Witness {
  return claimed === "application" && !delta?.application ? "none" : claimed;
}

/** The counts, completed with what only the service knows. */
export function complete(messages: MessageCounts, claimed: Witness, delta: Delta | null): MessageCounts {
  if (claimed === "reply" || delta === null) return messages;
  const delivered = delta.application?.delivered ?? 0;
  const lost = Math.max(0, messages.sent - delivered - total(delta.dropped));
  return { ...messages, delivered, dropped: delta.dropped, lost };
}

/** Every equation that the counters allow. */
export function books(merged: Merged, claimed: Witness, delta: Delta | null, service: ConnectionBook[] | null): Books {
  const { connections, messages } = merged;
  const failed = total(connections.failed);
  const equations = [
    equation("attempted = open + failed", connections.attempted, [
      ["open", connections.open],
      ["failed", failed],
    ]),
  ];
  if (delta !== null) equations.push(accepted(delta.accepted, connections.open, failed));
  if (messages.due > 0) {
    equations.push(...ofWorkers(merged, claimed));
    if (delta !== null) {
      // A service with totals only may not count what it receives, or hands over.
      if (service !== null || delta.received > 0) equations.push(...ofService(merged, delta));
      equations.push(...ofApplication(merged, claimed, delta, service !== null));
    }
  }
  return { equations, connections: service === null ? null : compare(merged.books, service) };
}

/** Whether every equation holds, for the trial and for each connection. */
export function balance(books: Books): boolean {
  return books.equations.every(holds) && (books.connections?.mismatched ?? 0) === 0;
}

/** Whether both sides are equal. */
export function holds(equation: Equation): boolean {
  return BigInt(equation.left) === BigInt(equation.right);
}

type Term = [string, number | bigint];

function equation(name: string, left: number | bigint, terms: Term[]): Equation {
  const right = terms.reduce((sum, [, term]) => BigInt.asUintN(64, sum + BigInt(term)), 0n);
  return { name, left, right, terms };
}

/** An attempt can fail after the service accepted it; more than that needs another explanation. */
function accepted(service: number, open: number, failed: number): Equation {
  const late = Math.min(Math.max(0, service - open), failed);
  const terms: Term[] = [["open", open]];
  if (late > 0) terms.push(["failed after it was accepted", late]);
  return equation("accepted (service) = open (workers)", service, terms);
}

function ofWorkers({ messages, books }: Merged, claimed: Witness): Equation[] {
  const outcomes: Term[] = [
    ["delivered", messages.delivered],
    ["late", messages.late],
    ["wrong", messages.wrong],
    ["dropped", total(messages.dropped)],
    ["lost", messages.lost],
    ["unsent", messages.unsent],
  ];
  const all = equation("due = delivered + late + wrong + dropped + lost + unsent", messages.due, outcomes);
  const ofConnections = books.reduce((sum, book) => sum + book.sent, 0);
  return [
    ...(claimed === "reply" ? [all] : []),
    equation("due = sent + unsent", messages.due, [
      ["sent", messages.sent],
      ["unsent", messages.unsent],
    ]),
    equation("sent = sum over the workers' connections", messages.sent, [["sent by connections", ofConnections]]),
  ];
}

function ofService({ messages, books }: Merged, delta: Delta): Equation[] {
  const unnumbered = books.reduce((sum, book) => sum + book.unnumbered, 0);
  return [
    equation("received (service) = sent + unnumbered (workers)", delta.received, [
      ["sent", messages.sent],
      ["unnumbered", unnumbered],
    ]),
    equation("received = consumed + delivered + dropped + queued", delta.received, [
      ["consumed", delta.consumed],
      ["delivered", delta.delivered],
      ...drops(delta),
      ["queued", delta.queued],
    ]),
  ];
}

function ofApplication({ messages, books }: Merged, claimed: Witness, delta: Delta, each: boolean): Equation[] {
  const { application } = delta;
  if (application === null || claimed !== "application") return [];
  const counted: Term = ["delivered (application)", application.delivered];
  const equations = [equation("sent = delivered (application) + dropped", messages.sent, [counted, ...drops(delta)])];
  if (each || delta.delivered > 0) {
    equations.unshift(equation("delivered (service) = delivered (application)", delta.delivered, [counted]));
  }
  if (total(delta.dropped) === 0) {
    const sum = books.reduce((all, book) => BigInt.asUintN(64, all + BigInt(book.sequence_sum)), 0n);
    const seen: Term = ["sequence sum delivered", application.sequence_sum];
    equations.push(equation("sequence sum sent = sequence sum delivered", sum, [seen]));
  }
  return equations;
}

function drops(delta: Delta): Term[] {
  return Object.entries(delta.dropped).map(([reason, count]) => [`dropped(${reason})`, count]);
}

/** Compares both sides connection by connection. */
function compare(workers: WorkerBook[], service: ConnectionBook[]): NonNullable<Books["connections"]> {
  const known = new Map(service.map((book) => [book.id, book]));
  const wrong: string[] = [];
  for (const worker of workers) {
    const book = known.get(worker.id);
    known.delete(worker.id);
    const words = book === undefined ? "the service doesn't know this connection" : difference(worker, book);
    if (words) wrong.push(`${worker.id}: ${words}`);
  }
  for (const [id, { received }] of known) {
    if (received > 0) wrong.push(`${id}: no worker knows this connection, which sent ${received}`);
  }
  return { compared: workers.length, mismatched: wrong.length, examples: wrong.slice(0, NAMED_MISMATCHES) };
}

function difference(worker: WorkerBook, service: ConnectionBook): string | undefined {
  const sent = worker.sent + worker.unnumbered;
  if (sent !== service.received) return `sent ${sent}, received ${service.received}`;
  const { application, dropped, consumed } = service;
  if (!application) return undefined;
  if (sent !== application.delivered + dropped + consumed) {
    return `sent ${sent}, but the application counted ${application.delivered}, ${dropped} were dropped and ${consumed} consumed`;
  }
  if (dropped === 0 && BigInt(application.sequence_sum) !== BigInt(worker.sequence_sum)) {
    return `sequence sum sent ${worker.sequence_sum}, delivered ${application.sequence_sum}`;
  }
  return undefined;
}
