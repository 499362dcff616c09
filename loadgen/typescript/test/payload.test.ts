import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { inflateSync } from "node:zlib";
import { decode } from "@msgpack/msgpack";
import { readyId } from "../src/connection.ts";
import type { Format } from "../src/payload.ts";
import { composer, FIRST_SEQUENCE, FORMATS, ping, pongNumber } from "../src/payload.ts";
import { token } from "../src/token.ts";

function message(format: Format, size_bytes: number, sequence: number): Buffer {
  return composer({ format, size_bytes, coalesce: 1 }).compose(sequence);
}

function decoded(format: Format, size_bytes: number, sequence: number): unknown {
  const bytes = message(format, size_bytes, sequence);
  if (format === "json") return JSON.parse(bytes.toString());
  if (format === "msgpack") return decode(bytes.subarray("M:".length));
  return JSON.parse(inflateSync(bytes.subarray("C:".length)).toString());
}

test("messages have the published sizes", () => {
  const sizes = [64, 175, 256, 1024, 4096, 16_384, 65_536].map((size) => message("json", size, FIRST_SEQUENCE).length);
  assert.deepEqual(sizes, [54, 175, 246, 1014, 4086, 16_374, 65_526]);
});

test("all formats contain the same fields and the requested number", () => {
  for (const size of [64, 175, 1024]) {
    const expected = decoded("json", size, 123_456_789) as { p: { seq: number }; t: string };
    assert.deepEqual([expected.p.seq, expected.t], [123_456_789, "trade_update"]);
    for (const format of FORMATS) assert.deepEqual(decoded(format, size, 123_456_789), expected);
  }
});

test("a later number overwrites every digit of an earlier one", () => {
  const same = composer({ format: "json", size_bytes: 175, coalesce: 1 });
  same.compose(999_999_999);
  assert.equal(JSON.parse(same.compose(FIRST_SEQUENCE).toString()).p.seq, FIRST_SEQUENCE);
});

interface Golden {
  name: string;
  from: string;
  opcode: string;
  hex: string;
  means: string;
  client_timestamp?: number;
  connection_id?: string;
}

const golden: Golden[] = JSON.parse(
  readFileSync(new URL("../../../services/testdata/wse-messages.json", import.meta.url), "utf8"),
).messages.filter((one: Golden) => one.from === "server");

test("the number of a pong is parsed, and other messages have none", () => {
  const texts = golden.filter((one) => one.opcode === "text");
  assert.ok(texts.some((one) => one.means === "pong") && texts.some((one) => one.means !== "pong"));
  for (const one of texts) {
    const expected = one.means === "pong" ? one.client_timestamp : undefined;
    assert.equal(pongNumber(Buffer.from(one.hex, "hex").toString()), expected, one.name);
  }
});

test("only a server_ready gives a connection its id", () => {
  for (const one of golden) {
    const expected = one.means === "server_ready" ? one.connection_id : undefined;
    assert.equal(readyId(Buffer.from(one.hex, "hex"), one.opcode === "binary"), expected, one.name);
  }
});

test("a ping has its number in the field that the service echoes", () => {
  assert.equal(JSON.parse(ping(7)).p.timestamp, 7);
});

test("a token is signed with HS256 over the published claims", () => {
  // The form is that of RFC 7515, A.1; the value was computed with Python's hmac.
  const [header, claims, signature] = token("bench-secret-key-for-testing-only", 1000).split(".");
  assert.deepEqual(JSON.parse(Buffer.from(header ?? "", "base64url").toString()), { alg: "HS256", typ: "JWT" });
  assert.equal(JSON.parse(Buffer.from(claims ?? "", "base64url").toString()).exp, 4600);
  assert.equal(signature, "d4tl2_vK06L6ztkPwiPXI58z88edPDcqkPDLgIbEGU0");
});
