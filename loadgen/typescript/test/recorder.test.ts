import assert from "node:assert/strict";
import { test } from "node:test";
import { inflateSync } from "node:zlib";
import * as hdr from "hdr-histogram-js";
import { HIGHEST_NS, Recorder, WindowRecorder } from "../src/recorder.ts";

test("an encoded histogram holds every value that was recorded", () => {
  const recorder = new Recorder();
  for (let value = 1; value <= 500; value++) recorder.record(value);
  const { v2, count, overflow } = recorder.encode();
  const values = hdr.decodeFromCompressedBase64(v2);
  assert.deepEqual([count, overflow, values.totalCount], [500, 0, 500]);
  assert.deepEqual([values.minNonZeroValue, values.getValueAtPercentile(50), values.maxValue], [1, 250, 500]);
});

test("an encoded histogram has the header of the format, which strict readers check", () => {
  const recorder = new Recorder();
  recorder.record(5);
  const outer = Buffer.from(recorder.encode().v2, "base64");
  assert.equal(outer.readUInt32BE(4), outer.length - 8);
  const inner = inflateSync(outer.subarray(8));
  assert.deepEqual([outer.readUInt32BE(0), inner.readUInt32BE(0)], [0x1c849314, 0x1c849313]);
  const [offset, digits, lowest, highest] = [8, 12, 20, 24].map((at) => inner.readUInt32BE(at));
  assert.deepEqual(
    [offset, digits, lowest, highest, inner.readDoubleBE(32)],
    [0, 3, 1, Math.floor(HIGHEST_NS / 2 ** 32), 1],
  );
});

test("values above ten minutes are counted as overflow", () => {
  const recorder = new Recorder();
  for (const value of [HIGHEST_NS, HIGHEST_NS + 1, HIGHEST_NS * 2]) recorder.record(value);
  assert.deepEqual([recorder.encode().count, recorder.encode().overflow], [1, 2]);
});

test("each second of a window is an interval, and empty ones are left out", () => {
  const recorder = new WindowRecorder(1e9);
  for (const atNs of [1.1e9, 1.2e9, 4.5e9]) recorder.record("response_ns", 5, atNs);
  const whole = recorder.finish();
  assert.equal(whole.response_ns?.count, 3);
  const intervals = recorder.intervals.map((one) => [one.start_ns, one.histograms.response_ns?.count]);
  assert.deepEqual(intervals, [
    [0, 2],
    [3e9, 1],
  ]);
});
