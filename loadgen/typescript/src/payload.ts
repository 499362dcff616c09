// Messages: the trade update of the published benchmarks in three formats, with the same bytes as `wse-bench`. Each has
// a number, so that the application's sum of numbers reveals drops that the service didn't count.

import { deflateSync } from "node:zlib";
import { encode } from "@msgpack/msgpack";
import type { Message } from "./schemas.ts";

export type Format = "json" | "msgpack" | "compressed";

/** A message of WSE with all fields set. */
export interface WseMessage extends Required<Omit<Message, "shapes">> {
  format: Format;
}

/** First number: all numbers of a connection have the same number of digits, and are a uint 32 in MessagePack. */
export const FIRST_SEQUENCE = 100_000_000;
const DIGITS = String(FIRST_SEQUENCE).length;
const BASE_BYTES = 175;
/** `"data":"",` around the padding, and ten bytes by which published messages are shorter than their nominal size. */
const PADDING_OVERHEAD = 20;
const SHORT_BYTES = 64;

/** Composes messages. The returned buffer is valid only until the next call. */
export interface Composer {
  readonly binary: boolean;
  compose(sequence: number): Buffer;
}

/** Returns the composer of trade updates for a format and size. */
export function composer(message: WseMessage): Composer {
  switch (message.format) {
    case "json":
      return new Json(tradeUpdate(message.size_bytes));
    case "msgpack":
      return new Msgpack(tradeUpdate(message.size_bytes));
    case "compressed":
      return new Compressed(new Json(tradeUpdate(message.size_bytes)));
  }
}

/** The formats in the published order. */
export const FORMATS: readonly Format[] = ["json", "msgpack", "compressed"];

/** A trade update of a nominal size; keys are sorted, as the published Rust client sent them. */
function tradeUpdate(sizeBytes: number): object {
  if (sizeBytes <= SHORT_BYTES) return { p: { s: "ESZ26", seq: FIRST_SEQUENCE }, t: "trade_update" };
  const padding = Math.max(0, sizeBytes - BASE_BYTES - PADDING_OVERHEAD);
  const data = padding > 0 ? { data: "x".repeat(padding) } : {};
  return {
    p: {
      account: "acc_01HQ3",
      ...data,
      price: 5234.75,
      qty: 2,
      score: 0.87,
      seq: FIRST_SEQUENCE,
      side: "buy",
      symbol: "ES",
      tags: ["momentum", "breakout"],
      ts: 1_771_857_000,
    },
    t: "trade_update",
  };
}

class Json implements Composer {
  readonly binary = false;
  private readonly bytes: Buffer;
  private readonly last: number;

  constructor(value: object) {
    this.bytes = Buffer.from(JSON.stringify(value));
    this.last = this.bytes.indexOf(String(FIRST_SEQUENCE)) + DIGITS - 1;
  }

  compose(sequence: number): Buffer {
    let remaining = sequence;
    for (let at = this.last; remaining > 0; at--) {
      this.bytes[at] = 48 + (remaining % 10);
      remaining = Math.floor(remaining / 10);
    }
    return this.bytes;
  }
}

class Msgpack implements Composer {
  readonly binary = true;
  private readonly bytes: Buffer;
  private readonly at: number;

  constructor(value: object) {
    this.bytes = Buffer.concat([Buffer.from("M:"), encode(value)]);
    // `seq` as a string of three bytes, then the type byte of a uint 32.
    const key = Buffer.from([0xa3, 0x73, 0x65, 0x71, 0xce]);
    this.at = this.bytes.indexOf(key) + key.length;
  }

  compose(sequence: number): Buffer {
    this.bytes.writeUInt32BE(sequence, this.at);
    return this.bytes;
  }
}

/** Compresses each message on its own, because of its number; such a flood is bound by the generator. */
class Compressed implements Composer {
  readonly binary = true;
  private static readonly prefix = Buffer.from("C:");
  private readonly json: Json;

  constructor(json: Json) {
    this.json = json;
  }

  compose(sequence: number): Buffer {
    return Buffer.concat([Compressed.prefix, deflateSync(this.json.compose(sequence))]);
  }
}

/** A ping with a number, which the service echoes from `p.timestamp`. */
export function ping(sequence: number): string {
  return `{"p":{"client_timestamp":${Date.now()},"timestamp":${sequence}},"t":"ping"}`;
}

/** The number of the ping that a pong answers; undefined for other messages. */
export function pongNumber(text: string): number | undefined {
  if (!/"t"\s*:\s*"pong"/i.test(text)) return undefined;
  const match = /"client_timestamp"\s*:\s*(\d+)/.exec(text);
  return match ? Number(match[1]) : undefined;
}
