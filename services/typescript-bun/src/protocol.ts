/**
 * What the gateway reads and says: the start message, the inference's answers, and the two messages, partial and error.
 * Pure.
 *
 * `JSON.parse` can't tell `7.0` from `7` and takes a key twice, and the contract asks for both to be refused. So a message
 * is first split into its members as they are written, and schemas check that text. What clients get of an answer is the
 * text that it had.
 */

import * as v from 'valibot';

/** Bytes of one frame of audio: 20 ms, 16 kHz, mono, 16 bits. */
export const FRAME_BYTES = 640;
/** Samples of one frame. */
const FRAME_SAMPLES = 320;
/** Time of one frame, in milliseconds. */
export const FRAME_MS = 20;
/** Longest data message that is read at all. */
export const MAX_MESSAGE_BYTES = 64 * 1024;

/** Kinds of failed requests. */
export const REQUEST_FAILURES = ['timeout', 'connection_reset', 'http_429', 'http_5xx', 'parse_error'] as const;

export type Kind = 'overflow' | (typeof REQUEST_FAILURES)[number];

/** Why a batch got no partial. */
export interface Failure {
  kind: Kind;
  /** Of the inference's answer, if there was one. */
  status: number | null;
  /** For a reader. */
  message: string;
}

/** Why a request failed. */
export type RequestFailure = Failure & { kind: (typeof REQUEST_FAILURES)[number] };

/** Frames that follow each other: what a message covers. */
export interface Span {
  /** Sequence number of the first. */
  oldest: number;
  /** How many; at least one. */
  frames: number;
}

/** An answer of the inference that is none; the message says why. */
export class AnswerError extends Error {}

const STRING = '"(?:[^"\\\\\\u0000-\\u001f]|\\\\(?:["\\\\/bfnrt]|u[\\da-fA-F]{4}))*"';
const NUMBER = '-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][+-]?\\d+)?';
const SPACE = '[ \\t\\n\\r]*';
const OPEN = new RegExp(`^${SPACE}\\{`);
const MEMBER = new RegExp(`${SPACE}(${STRING})${SPACE}:${SPACE}(${STRING}|${NUMBER})${SPACE}([,}])`, 'y');
const CLOSED = new RegExp(`^${SPACE}$`);

/**
 * The members of a JSON object whose values are strings and numbers, as they are written; `undefined` if `text` is none,
 * or has a key twice, or something behind the object.
 */
export function flatObject(text: string): Record<string, string> | undefined {
  const open = OPEN.exec(text);
  if (!open) return undefined;
  const members: Record<string, string> = Object.create(null);
  MEMBER.lastIndex = open[0].length;
  for (;;) {
    const position = MEMBER.lastIndex;
    const [whole, name, value, next] = MEMBER.exec(text) ?? [];
    if (whole === undefined || name === undefined || value === undefined) return undefined;
    const key: string = JSON.parse(name);
    if (key in members) return undefined;
    members[key] = value;
    if (next === '}') return CLOSED.test(text.slice(position + whole.length)) ? members : undefined;
  }
}

const Text = v.pipe(
  v.string(),
  v.startsWith('"', 'no text'),
  v.transform((raw): string => JSON.parse(raw)),
);
const Natural = v.pipe(v.string(), v.regex(/^(?:0|[1-9]\d{0,15})$/, 'no whole number'));
const Float = v.pipe(
  v.string(),
  v.check((raw) => !raw.startsWith('"') && Number.isFinite(Number(raw)), 'no number'),
);

const Start = v.strictObject({ type: v.pipe(Text, v.literal('start')) });

/** Whether `text` is exactly the object `{"type":"start"}`. */
export function isStart(text: string): boolean {
  return v.is(Start, flatObject(text));
}

/** The inference's answer to one batch. All but the transcript are JSON numbers as they came. */
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

/** Reads the inference's answer about so many frames; throws an {@link AnswerError}. */
export function parseRecognition(body: Uint8Array, frames: number, cpuPasses: number): Recognition {
  const parsed = v.safeParse(Recognition, flatObject(decode(body)), { abortEarly: true });
  if (!parsed.success) {
    const [issue] = parsed.issues;
    throw new AnswerError(`the inference's answer can't be read: ${v.getDotPath(issue) ?? 'object'}: ${issue.message}`);
  }
  const answer = parsed.output;
  expectCount('samples', answer.samples, cpuPasses * FRAME_SAMPLES * frames);
  expectCount('audio_bytes', answer.audio_bytes, frames * FRAME_BYTES);
  return answer;
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decode(body: Uint8Array): string {
  try {
    return utf8.decode(body);
  } catch {
    throw new AnswerError("the inference's answer is no UTF-8");
  }
}

function expectCount(key: string, value: string, expected: number): void {
  if (Number(value) !== expected) throw new AnswerError(`the inference's ${key} is ${value} instead of ${expected}`);
}

/** Settings that partials repeat. */
export interface Echo {
  cpuPasses: number;
  modelDelayMs: number;
}

/** The partial about `span`, as JSON. */
export function partial(span: Span, answer: Recognition, echo: Echo, flushLatenessMs: number): string {
  return (
    `{"type":"partial","oldest_frame_seq":${span.oldest},"newest_frame_seq":${newest(span)},"frames":${span.frames}` +
    `,"rms":${answer.rms},"zero_crossings":${answer.zero_crossings},"checksum":${answer.checksum}` +
    `,"samples":${answer.samples},"transcript":${JSON.stringify(answer.transcript)},"audio_bytes":${answer.audio_bytes}` +
    `,"cpu_passes":${echo.cpuPasses},"model_delay_ms":${echo.modelDelayMs}` +
    `,"flush_lateness_ms":${fractional(flushLatenessMs)},"inflight_model_jobs":0}`
  );
}

/** Since when the frames of a span wait, and what waits behind them. */
export interface Wait {
  /** Since the first was read. */
  oldestAgeMs: number;
  /** Since the last was read. */
  newestAgeMs: number;
  /** Between the tick's due time and its run. */
  flushLatenessMs: number;
  /** Since the request began, if there was one. */
  inferenceElapsedMs: number | null;
  /** Frames that wait now. */
  bufferedFrames: number;
}

/** The error about `span`, as JSON. */
export function error(span: Span, failure: Failure, wait: Wait): string {
  const { inferenceElapsedMs: elapsed } = wait;
  return (
    `{"type":"error","stage":"${stage(failure.kind)}","kind":"${failure.kind}"` +
    `,"message":${JSON.stringify(failure.message)},"oldest_frame_seq":${span.oldest}` +
    `,"newest_frame_seq":${newest(span)},"frames":${span.frames},"audio_bytes":${span.frames * FRAME_BYTES}` +
    `,"oldest_age_ms":${fractional(wait.oldestAgeMs)},"newest_age_ms":${fractional(wait.newestAgeMs)}` +
    `,"flush_lateness_ms":${fractional(wait.flushLatenessMs)}` +
    `,"inference_elapsed_ms":${elapsed === null ? 'null' : fractional(elapsed)}` +
    `,"inflight_gateway_batches":${elapsed === null ? 0 : 1},"gateway_buffer_frames":${wait.bufferedFrames}` +
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

/** A number that has a fraction, also where that is 0. */
function fractional(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
