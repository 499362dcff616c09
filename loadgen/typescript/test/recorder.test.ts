import assert from "node:assert/strict";
import { test } from "node:test";
import { inflateSync } from "node:zlib";
import { addUp, HIGHEST_NS, Recorder, samplesNeeded, WindowRecorder } from "../src/recorder.ts";

function recorded(from: number, to: number): Recorder {
  const recorder = new Recorder();
  for (let value = from; value < to; value++) recorder.record(value);
  return recorder;
}

test("merging is adding: two halves encode as the whole", () => {
  const halves = [recorded(1, 500), recorded(500, 900)].map((half) => ({ response_ns: half.encode() }));
  assert.deepEqual(addUp(halves).get("response_ns")?.encode(), recorded(1, 900).encode());
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

test("values beyond ten minutes are counted apart and are in no percentile", () => {
  const recorder = recorded(1, 501);
  for (let n = 0; n < 50; n++) recorder.record(HIGHEST_NS * 2);
  assert.deepEqual([recorder.count, recorder.overflow], [500, 50]);
  assert.equal(recorder.percentile(99), null);
  assert.ok(recorder.percentile(50));
});

test("a percentile needs the published number of samples", () => {
  assert.deepEqual([99, 99.9, 99.99].map(samplesNeeded), [459, 4603, 46_050]);
  assert.equal(recorded(1, 459).percentile(99), null);
  assert.equal(recorded(1, 460).percentile(99), 455);
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
