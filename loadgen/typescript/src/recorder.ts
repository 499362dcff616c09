// Histograms: the whole window and each second of it. From 1 ns to ten minutes, three digits, as everywhere in ws-ladder.

import { deflateSync, inflateSync } from "node:zlib";
import * as hdr from "hdr-histogram-js";
import { NS_PER_SECOND } from "./clock.ts";
import type { Histogram, Interval } from "./schemas.ts";

/** Largest value that a histogram holds: ten minutes, in nanoseconds. What lies beyond is counted as overflow. */
export const HIGHEST_NS = 600_000_000_000;
const DIGITS = 3;
/** Of a deflated V2 histogram: its cookie and the length of what follows, in bytes. */
const OUTER_HEADER = 8;
/** Where a V2 histogram has the offset of its first bucket, and the ratio by which values in it were scaled. */
const OFFSET_AT = 8;
const RATIO_AT = 32;

/** One histogram while values are recorded into it. */
export class Recorder {
  private readonly values = hdr.build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: HIGHEST_NS,
    numberOfSignificantValueDigits: DIGITS,
    bitBucketSize: 32,
  });
  overflow = 0;

  /** Counts a value in nanoseconds; 0 counts as 1. */
  record(valueNs: number): void {
    if (valueNs > HIGHEST_NS) this.overflow++;
    else this.values.recordValue(Math.max(1, Math.round(valueNs)));
  }

  get count(): number {
    return this.values.totalCount;
  }

  reset(): void {
    this.values.reset();
    this.overflow = 0;
  }

  encode(): Histogram {
    return { v2: standard(hdr.encodeIntoCompressedBase64(this.values)), count: this.count, overflow: this.overflow };
  }
}

/**
 * The same histogram with the header that the format asks for. `hdr-histogram-js` writes offset 1 and the whole number 1 as
 * ratio, reads neither, and is understood by libraries that read neither; strict ones expect 0 and the double 1.
 */
function standard(v2: string): string {
  const outer = Buffer.from(v2, "base64");
  const inner = inflateSync(outer.subarray(OUTER_HEADER, OUTER_HEADER + outer.readUInt32BE(4)));
  inner.writeUInt32BE(0, OFFSET_AT);
  inner.writeDoubleBE(1, RATIO_AT);
  const deflated = deflateSync(inner);
  outer.writeUInt32BE(deflated.length, 4);
  return Buffer.concat([outer.subarray(0, OUTER_HEADER), deflated]).toString("base64");
}

/** The histograms of one worker's window, whole and second by second. */
export class WindowRecorder {
  readonly intervals: Interval[] = [];
  private readonly whole = new Map<string, Recorder>();
  private readonly second = new Map<string, Recorder>();
  private readonly startNs: number;
  private current = 0;

  /** `startNs`: the window's start on the monotonic clock. */
  constructor(startNs: number) {
    this.startNs = startNs;
  }

  /** Counts `valueNs`, which was known at `atNs`. */
  record(name: string, valueNs: number, atNs: number): void {
    const second = Math.max(0, Math.floor((atNs - this.startNs) / NS_PER_SECOND));
    if (second > this.current) this.next(second);
    for (const recorders of [this.whole, this.second]) {
      let recorder = recorders.get(name);
      if (recorder === undefined) {
        recorder = new Recorder();
        recorders.set(name, recorder);
      }
      recorder.record(valueNs);
    }
  }

  /** All values, by name. */
  finish(): Record<string, Histogram> {
    this.next(this.current + 1);
    return encodeAll(this.whole);
  }

  private next(second: number): void {
    const filled = [...this.second].filter(([, recorder]) => recorder.count + recorder.overflow > 0);
    if (filled.length > 0) {
      const histograms = encodeAll(new Map(filled));
      this.intervals.push({ start_ns: this.current * NS_PER_SECOND, duration_ns: NS_PER_SECOND, histograms });
    }
    for (const recorder of this.second.values()) recorder.reset();
    this.current = second;
  }
}

function encodeAll(recorders: Map<string, Recorder>): Record<string, Histogram> {
  return Object.fromEntries([...recorders].map(([name, recorder]) => [name, recorder.encode()]));
}
