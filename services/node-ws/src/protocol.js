/**
 * The messages: the start message, the inference's response, and the partials and errors that clients get. No I/O.
 *
 * `JSON.parse` can't distinguish `7.0` from `7` and accepts duplicate keys; the contract requires both to be refused.
 * So the flat objects of this protocol are parsed member by member, and partials repeat the text of the response
 * unchanged.
 */

/** Size of one audio frame in bytes: 20 ms of 16 kHz mono PCM with 16-bit samples. */
export const FRAME_BYTES = 640;
/** Samples in one audio frame. */
const FRAME_SAMPLES = 320;
/** Duration of one audio frame, in milliseconds. */
export const FRAME_MS = 20;
/** Largest data message that a client may send, in bytes. */
export const MAX_MESSAGE_BYTES = 64 * 1024;

/** @typedef {'overflow' | 'timeout' | 'connection_reset' | 'http_429' | 'http_5xx' | 'parse_error'} Kind */

/** The kinds with which a request can fail. */
export const REQUEST_FAILURES = /** @type {const} */ ([
  'timeout',
  'connection_reset',
  'http_429',
  'http_5xx',
  'parse_error',
]);

/**
 * Why a batch gets an error message instead of a partial.
 *
 * @typedef {object} Failure
 * @property {Kind} kind
 * @property {number | null} status HTTP status of the inference's response; null if there was none
 * @property {string} message human-readable description
 */

/**
 * A sequence of consecutive frames, which one message covers.
 *
 * @typedef {object} Span
 * @property {number} oldest sequence number of the first frame
 * @property {number} frames number of frames, at least 1
 */

/**
 * The inference's response to one batch. All members except the transcript are the text of JSON numbers.
 *
 * @typedef {object} Recognition
 * @property {string} rms
 * @property {string} zeroCrossings
 * @property {string} checksum
 * @property {string} samples
 * @property {string} transcript
 * @property {string} audioBytes
 */

/** An invalid response of the inference; the message says why. */
export class ResponseError extends Error {}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const STRING = '"(?:[^"\\\\\\u0000-\\u001f]|\\\\(?:["\\\\/bfnrt]|u[\\da-fA-F]{4}))*"';
const NUMBER = '-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][+-]?\\d+)?';
const SPACE = '[ \\t\\n\\r]*';
const OPEN = new RegExp(`^${SPACE}\\{`);
const MEMBER = new RegExp(`${SPACE}(${STRING})${SPACE}:${SPACE}(${STRING}|${NUMBER})${SPACE}([,}])`, 'y');
const CLOSED = new RegExp(`^${SPACE}$`);
const NATURAL = /^(?:0|[1-9]\d{0,15})$/;

/**
 * Splits a JSON object of strings and numbers into its members as text. Returns `undefined` if `bytes` are not such
 * an object, have a duplicate key, or have text after the object.
 *
 * @param {Uint8Array} bytes
 * @returns {Map<string, string> | undefined}
 */
export function flatObject(bytes) {
  let text;
  try {
    text = utf8.decode(bytes);
  } catch {
    return undefined;
  }
  const open = OPEN.exec(text);
  if (!open) return undefined;
  /** @type {Map<string, string>} */
  const members = new Map();
  MEMBER.lastIndex = open[0].length;
  for (;;) {
    const position = MEMBER.lastIndex;
    const [matched, name, value, next] = MEMBER.exec(text) ?? [];
    if (matched === undefined || name === undefined || value === undefined) return undefined;
    const key = JSON.parse(name);
    if (members.has(key)) return undefined;
    members.set(key, value);
    if (next === '}') return CLOSED.test(text.slice(position + matched.length)) ? members : undefined;
  }
}

/**
 * Whether `bytes` are the JSON object `{"type":"start"}` without further keys.
 *
 * @param {Uint8Array} bytes
 */
export function isStart(bytes) {
  const members = flatObject(bytes);
  const type = members?.size === 1 ? members.get('type') : undefined;
  return type?.startsWith('"') === true && JSON.parse(type) === 'start';
}

/**
 * Parses the response to a batch of `frames` frames and checks its counts.
 *
 * @param {Uint8Array} body
 * @param {number} frames
 * @param {number} cpuPasses
 * @returns {Recognition}
 * @throws {ResponseError}
 */
export function parseRecognition(body, frames, cpuPasses) {
  const members = flatObject(body);
  if (members?.size !== 6) throw new ResponseError("the inference's answer is not an object of six members");
  const rms = member(members, 'rms');
  if (rms.startsWith('"') || !Number.isFinite(Number(rms))) {
    throw new ResponseError(`the inference's rms is ${rms}, and no number`);
  }
  const zeroCrossings = natural(members, 'zero_crossings');
  const checksum = natural(members, 'checksum');
  if (Number(checksum) > 0xffff_ffff) throw new ResponseError(`the inference's checksum is ${checksum}: over 32 bits`);
  const samples = natural(members, 'samples');
  expectCount('samples', samples, cpuPasses * FRAME_SAMPLES * frames);
  const audioBytes = natural(members, 'audio_bytes');
  expectCount('audio_bytes', audioBytes, frames * FRAME_BYTES);
  const transcript = member(members, 'transcript');
  if (!transcript.startsWith('"')) throw new ResponseError(`the inference's transcript is ${transcript}, and no text`);
  if (transcript === '""') throw new ResponseError("the inference's transcript is empty");
  return { rms, zeroCrossings, checksum, samples, transcript: JSON.parse(transcript), audioBytes };
}

/** @type {(members: Map<string, string>, key: string) => string} */
function member(members, key) {
  const value = members.get(key);
  if (value === undefined) throw new ResponseError(`the inference's answer has no ${key}`);
  return value;
}

/** @type {(members: Map<string, string>, key: string) => string} */
function natural(members, key) {
  const value = member(members, key);
  if (!NATURAL.test(value)) throw new ResponseError(`the inference's ${key} is ${value}, which is not a whole number`);
  return value;
}

/** @type {(key: string, value: string, expected: number) => void} */
function expectCount(key, value, expected) {
  if (Number(value) !== expected) throw new ResponseError(`the inference's ${key} is ${value} instead of ${expected}`);
}

/**
 * Returns the partial that covers `span`, as JSON.
 *
 * @param {Span} span
 * @param {Recognition} recognition
 * @param {{cpuPasses: number, modelDelayMs: number}} echo settings that every partial repeats
 * @param {number} flushLatenessMs
 */
export function partial(span, recognition, echo, flushLatenessMs) {
  return (
    `{"type":"partial","oldest_frame_seq":${span.oldest},"newest_frame_seq":${newest(span)},"frames":${span.frames}` +
    `,"rms":${recognition.rms},"zero_crossings":${recognition.zeroCrossings},"checksum":${recognition.checksum}` +
    `,"samples":${recognition.samples},"transcript":${JSON.stringify(recognition.transcript)},"audio_bytes":${recognition.audioBytes}` +
    `,"cpu_passes":${echo.cpuPasses},"model_delay_ms":${echo.modelDelayMs}` +
    `,"flush_lateness_ms":${fractional(flushLatenessMs)},"inflight_model_jobs":0}`
  );
}

/**
 * Times and buffer state that an error message reports.
 *
 * @typedef {object} ErrorContext
 * @property {number} oldestAgeMs time since the first frame was read
 * @property {number} newestAgeMs time since the last frame was read
 * @property {number} flushLatenessMs time from when the tick was due until it ran
 * @property {number | null} inferenceElapsedMs time since the request began; null if there was no request
 * @property {number} bufferedFrames frames of the session that wait now
 */

/**
 * Returns the error that covers `span`, as JSON.
 *
 * @param {Span} span
 * @param {Failure} failure
 * @param {ErrorContext} context
 */
export function error(span, failure, context) {
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

/** @param {Span} span */
function newest(span) {
  return span.oldest + span.frames - 1;
}

/** @param {Kind} kind */
function stage(kind) {
  if (kind === 'overflow') return 'websocket_receive';
  return kind === 'parse_error' ? 'inference_response_parse' : 'inference_request';
}

/** @param {Failure} failure */
function isRetryable({ kind, status }) {
  if (kind === 'http_5xx') return status !== null && status >= 500 && status < 600;
  return kind === 'timeout' || kind === 'connection_reset' || kind === 'http_429';
}

/**
 * Formats a number with a decimal point, even if it is whole.
 *
 * @param {number} value
 */
function fractional(value) {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
