import assert from "node:assert/strict";
import { test } from "node:test";
import { balance, books, complete, type Delta, witness } from "../src/books.ts";
import { fromJson, toJson } from "../src/json.ts";
import { type Merged, merge } from "../src/merge.ts";
import type { ConnectionBook, WorkerBook } from "../src/schemas.ts";

const sent: WorkerBook = { id: "a", sent: 10, sequence_sum: 55n, unnumbered: 1, replies: 0 };
const received: ConnectionBook = {
  id: "a",
  open: false,
  received: 11,
  consumed: 1,
  dropped: 0,
  application: { delivered: 10, sequence_sum: 55n, unnumbered: 0 },
};

function trial(): Merged {
  const merged = merge([]);
  merged.books = [sent];
  Object.assign(merged.messages, { due: 10, sent: 10 });
  Object.assign(merged.connections, { attempted: 1, open: 1 });
  return merged;
}

function delta(changes: Partial<Delta> = {}): Delta {
  const application = { delivered: 10, sequence_sum: 55n, unnumbered: 0 };
  return { accepted: 1, received: 11, consumed: 1, delivered: 10, dropped: {}, queued: 0, application, ...changes };
}

test("honest books balance", () => {
  assert.ok(balance(books(trial(), "application", delta(), [received])));
});

test("a counted drop balances and is no loss", () => {
  const dropped = { inbound_overflow: 1 };
  const application = { delivered: 9, sequence_sum: 50n, unnumbered: 0 };
  const seen = delta({ delivered: 9, dropped, application });
  assert.ok(balance(books(trial(), "application", seen, [{ ...received, dropped: 1, application }])));
  const messages = complete(trial().messages, "application", seen);
  assert.deepEqual([messages.delivered, messages.lost, messages.dropped], [9, 0, dropped]);
});

test("a service that drops a message and reports it delivered is caught by the sum of the numbers", () => {
  const application = { delivered: 10, sequence_sum: 50n, unnumbered: 0 };
  const found = books(trial(), "application", delta({ application }), [{ ...received, application }]);
  assert.ok(!balance(found));
  assert.deepEqual(found.connections?.examples, ["a: sequence sum sent 55, delivered 50"]);
});

test("what nobody accounts for is lost", () => {
  const application = { delivered: 8, sequence_sum: 40n, unnumbered: 0 };
  assert.equal(complete(trial().messages, "application", delta({ application })).lost, 2);
});

test("a connection that only one side knows is a mismatch", () => {
  assert.equal(books(trial(), "application", delta(), []).connections?.mismatched, 1);
  const stranger = { ...received, id: "b" };
  assert.equal(books(trial(), "application", delta(), [received, stranger]).connections?.mismatched, 1);
});

test("an application that isn't there is no witness", () => {
  assert.equal(witness("application", delta({ application: null })), "none");
  assert.equal(witness("application", null), "none");
  assert.equal(witness("reply", null), "reply");
});

test("sums of sequence numbers keep all of their digits in both directions", () => {
  const text = '{"application":{"delivered":1,"sequence_sum":18446744073709551615,"unnumbered":0}}';
  const value = fromJson<{ application: { sequence_sum: bigint } }>(text);
  assert.equal(value.application.sequence_sum, 18_446_744_073_709_551_615n);
  assert.equal(toJson(value).replace(/\s/g, ""), text);
});

test("only what a double can't hold is a bigint, and digits inside a text are text", () => {
  const text =
    '{"a":9007199254740991,"b":9007199254740993,"c":0.30000000000000004,"d":"say \\"12345678901234567890","e":[1]}';
  const value = fromJson<Record<string, unknown>>(text);
  assert.deepEqual(value, {
    a: 9_007_199_254_740_991,
    b: 9_007_199_254_740_993n,
    c: 0.1 + 0.2,
    d: 'say "12345678901234567890',
    e: [1],
  });
});
