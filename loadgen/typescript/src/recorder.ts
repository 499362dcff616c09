// Histograms of the whole window and of each second, from 1 ns to ten minutes with three significant digits.

import { deflateSync, inflateSync } from "node:zlib";
import * as hdr from "hdr-histogram-js";
import { NS_PER_SECOND } from "./clock.ts";
import type { Histogram, Interval } from "./schemas.ts";

/** Largest value of a histogram in nanoseconds (ten minutes); larger ones count as overflow. */
export const HIGHEST_NS = 600_000_000_000;
const DIGITS = 3;
/** Bytes of the outer header of a compressed V2 histogram: a cookie and the length of the rest. */
const OUTER_HEADER = 8;
/** Positions in a V2 histogram of the offset of its first bucket, and of the ratio by which its values are scaled. */
const OFFSET_AT = 8;
const RATIO_AT = 32;

/** A histogram that is being recorded. */
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
 * Corrects the header of a V2 histogram. `hdr-histogram-js` writes offset 1 and the integer 1 as ratio and reads
 * neither; libraries that read them expect 0 and the double 1.
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

/** The histograms of one worker's window, whole and per second. */
export class WindowRecorder {
  readonly intervals: Interval[] = [];
  private readonly whole = new Map<string, Recorder>();
  private readonly second = new Map<string, Recorder>();
  private readonly startNs: number;
  private current = 0;

  /** `startNs` is the window's start in nanoseconds of the monotonic clock. */
  constructor(startNs: number) {
    this.startNs = startNs;
  }

  /** Counts a value that was measured at `atNs` of the monotonic clock. */
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

  /** Closes the last interval and returns the histograms of the whole window by name. */
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
