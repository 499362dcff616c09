// JSON with integers that are too large for a double, such as sums of sequence numbers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromJson, toJson } from "../src/json.ts";

test("sums of sequence numbers keep all of their digits in both directions", () => {
  const text = '{"application":{"delivered":1,"sequence_sum":18446744073709551615,"unnumbered":0}}';
  const value = fromJson<{ application: { sequence_sum: bigint } }>(text);
  assert.equal(value.application.sequence_sum, 18_446_744_073_709_551_615n);
  assert.equal(toJson(value).replace(/\s/g, ""), text);
});

test("only integers that a double can't represent are bigints, and digits in strings stay strings", () => {
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
