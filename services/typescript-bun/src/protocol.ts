/**
 * The messages: the start message, the inference's response, and the partials and errors that clients get. No I/O.
 *
 * `JSON.parse` can't distinguish `7.0` from `7` and accepts duplicate keys; the contract requires both to be refused.
 * So a message is first split into its members as text, and schemas check that text. Partials repeat the text of the
 * response unchanged.
 */

import * as v from 'valibot';

/** Size of one audio frame in bytes: 20 ms of 16 kHz mono PCM with 16-bit samples. */
export const FRAME_BYTES = 640;
/** Samples in one audio frame. */
const FRAME_SAMPLES = 320;
/** Duration of one audio frame, in milliseconds. */
export const FRAME_MS = 20;
/** Largest data message that a client may send, in bytes. */
export const MAX_MESSAGE_BYTES = 64 * 1024;

/** The kinds with which a request can fail. */
export const REQUEST_FAILURES = ['timeout', 'connection_reset', 'http_429', 'http_5xx', 'parse_error'] as const;

export type Kind = 'overflow' | (typeof REQUEST_FAILURES)[number];

/** Why a batch gets an error message instead of a partial. */
export interface Failure {
  kind: Kind;
  /** HTTP status of the inference's response; null if there was none. */
  status: number | null;
  /** Human-readable description. */
  message: string;
}

/** Why a request failed. */
export type RequestFailure = Failure & { kind: (typeof REQUEST_FAILURES)[number] };

/** A sequence of consecutive frames, which one message covers. */
export interface Span {
  /** Sequence number of the first frame. */
  oldest: number;
  /** Number of frames, at least 1. */
  frames: number;
}

/** An invalid response of the inference; the message says why. */
export class ResponseError extends Error {}

const STRING = '"(?:[^"\\\\\\u0000-\\u001f]|\\\\(?:["\\\\/bfnrt]|u[\\da-fA-F]{4}))*"';
const NUMBER = '-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][+-]?\\d+)?';
const SPACE = '[ \\t\\n\\r]*';
const OPEN = new RegExp(`^${SPACE}\\{`);
const MEMBER = new RegExp(`${SPACE}(${STRING})${SPACE}:${SPACE}(${STRING}|${NUMBER})${SPACE}([,}])`, 'y');
const CLOSED = new RegExp(`^${SPACE}$`);

/**
 * Splits a JSON object of strings and numbers into its members as text. Returns `undefined` if `text` is not such an
 * object, has a duplicate key, or has text after the object.
 */
export function flatObject(text: string): Record<string, string> | undefined {
  const open = OPEN.exec(text);
  if (!open) return undefined;
  const members: Record<string, string> = Object.create(null);
  MEMBER.lastIndex = open[0].length;
  for (;;) {
    const position = MEMBER.lastIndex;
    const [matched, name, value, next] = MEMBER.exec(text) ?? [];
    if (matched === undefined || name === undefined || value === undefined) return undefined;
    const key: string = JSON.parse(name);
    if (key in members) return undefined;
    members[key] = value;
    if (next === '}') return CLOSED.test(text.slice(position + matched.length)) ? members : undefined;
  }
}

const Text = v.pipe(
  v.string(),
  v.startsWith('"', 'not text'),
  v.transform((raw): string => JSON.parse(raw)),
);
const Natural = v.pipe(v.string(), v.regex(/^(?:0|[1-9]\d{0,15})$/, 'not a whole number'));
const Float = v.pipe(
  v.string(),
  v.check((raw) => !raw.startsWith('"') && Number.isFinite(Number(raw)), 'not a number'),
);

const Start = v.strictObject({ type: v.pipe(Text, v.literal('start')) });

/** Whether `text` is the JSON object `{"type":"start"}` without further keys. */
export function isStart(text: string): boolean {
  return v.is(Start, flatObject(text));
}

/** The inference's response to one batch. All members except the transcript are the text of JSON numbers. */
const Recognition = v.strictObject({
  rms: Float,
  zero_crossings: Natural,
  checksum: v.pipe(
    Natural,
    v.check((raw) => Number(raw) <= 0xffff_ffff, 'over 32 bits'),
  ),
  samples: Natural,
  transcript: v.pipe(Text, v.minLength(1, 'empty')),
  audio_bytes: Natural,
});

export type Recognition = v.InferOutput<typeof Recognition>;

/** Parses the response to a batch of `frames` frames. Throws a {@link ResponseError} if it is invalid. */
export function parseRecognition(body: Uint8Array, frames: number, cpuPasses: number): Recognition {
  const parsed = v.safeParse(Recognition, flatObject(decode(body)), { abortEarly: true });
  if (!parsed.success) {
    const [issue] = parsed.issues;
    throw new ResponseError(
      `the inference's answer can't be read: ${v.getDotPath(issue) ?? 'object'}: ${issue.message}`,
    );
  }
  const recognition = parsed.output;
  expectCount('samples', recognition.samples, cpuPasses * FRAME_SAMPLES * frames);
  expectCount('audio_bytes', recognition.audio_bytes, frames * FRAME_BYTES);
  return recognition;
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decode(body: Uint8Array): string {
  try {
    return utf8.decode(body);
  } catch {
    throw new ResponseError("the inference's answer is not UTF-8");
  }
}

function expectCount(key: string, value: string, expected: number): void {
  if (Number(value) !== expected) throw new ResponseError(`the inference's ${key} is ${value} instead of ${expected}`);
}

/** Settings that every partial repeats. */
export interface EchoedSettings {
  cpuPasses: number;
  modelDelayMs: number;
}

/** Returns the partial that covers `span`, as JSON. */
export function partial(span: Span, recognition: Recognition, echo: EchoedSettings, flushLatenessMs: number): string {
  return (
    `{"type":"partial","oldest_frame_seq":${span.oldest},"newest_frame_seq":${newest(span)},"frames":${span.frames}` +
    `,"rms":${recognition.rms},"zero_crossings":${recognition.zero_crossings},"checksum":${recognition.checksum}` +
    `,"samples":${recognition.samples},"transcript":${JSON.stringify(recognition.transcript)},"audio_bytes":${recognition.audio_bytes}` +
    `,"cpu_passes":${echo.cpuPasses},"model_delay_ms":${echo.modelDelayMs}` +
    `,"flush_lateness_ms":${fractional(flushLatenessMs)},"inflight_model_jobs":0}`
  );
}

/** Times and buffer state that an error message reports. */
export interface ErrorContext {
  /** Time since the first frame was read. */
  oldestAgeMs: number;
  /** Time since the last frame was read. */
  newestAgeMs: number;
  /** Time from when the tick was due until it ran. */
  flushLatenessMs: number;
  /** Time since the request began; null if there was no request. */
  inferenceElapsedMs: number | null;
  /** Frames of the session that wait now. */
  bufferedFrames: number;
}

/** Returns the error that covers `span`, as JSON. */
export function error(span: Span, failure: Failure, context: ErrorContext): string {
  const { inferenceElapsedMs: elapsed } = context;
  return (
    `{"type":"error","stage":"${stage(failure.kind)}","kind":"${failure.kind}"` +
    `,"message":${JSON.stringify(failure.message)},"oldest_frame_seq":${span.oldest}` +
    `,"newest_frame_seq":${newest(span)},"frames":${span.frames},"audio_bytes":${span.frames * FRAME_BYTES}` +
    `,"oldest_age_ms":${fractional(context.oldestAgeMs)},"newest_age_ms":${fractional(context.newestAgeMs)}` +
    `,"flush_lateness_ms":${fractional(context.flushLatenessMs)}` +
    `,"inference_elapsed_ms":${elapsed === null ? 'null' : fractional(elapsed)}` +
    `,"inflight_gateway_batches":${elapsed === null ? 0 : 1},"gateway_buffer_frames":${context.bufferedFrames}` +
    `,"inference_status":${failure.status},"retryable":${isRetryable(failure)}}`
  );
}

function newest(span: Span): number {
  return span.oldest + span.frames - 1;
}

function stage(kind: Kind): string {
  if (kind === 'overflow') return 'websocket_receive';
  return kind === 'parse_error' ? 'inference_response_parse' : 'inference_request';
}

function isRetryable({ kind, status }: Failure): boolean {
  if (kind === 'http_5xx') return status !== null && status >= 500 && status < 600;
  return kind === 'timeout' || kind === 'connection_reset' || kind === 'http_429';
}

/** Formats a number with a decimal point, even if it is whole. */
function fractional(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
