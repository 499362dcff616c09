/**
 * The gateway's settings, from flags and from environment variables of the same meaning, as listed in
 * `services/README.md` ("Gateways"). A flag overrides its variable.
 */

import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';

/**
 * @typedef {object} Config
 * @property {string} host address to listen on
 * @property {number} port port for WebSocket clients; 0 lets the kernel pick one
 * @property {number} metricsPort port of /stats and /metrics; 0 lets the kernel pick one
 * @property {{host: string, port: number}} inference address of the inference
 * @property {number} cpuPasses passes that the inference makes over each batch
 * @property {number} modelDelayMs model delay that partials report; it has no other effect
 * @property {number} flushIntervalMs time between two flush ticks of a session
 * @property {number} flushPhaseJitterMs upper bound of the random offset of a session's ticks, drawn once per session
 * @property {number} inferenceTimeoutMs longest time from a tick to the end of the inference's response
 * @property {number} inferenceHttpClients HTTP/2 connections to the inference per process
 * @property {number} workerThreads number of processes that serve sessions, at least 1
 * @property {number} maxBufferedFrames frames that may wait in a session, besides the batch in flight
 * @property {number} maxConnections connections that may be open at once; 0 means no limit
 */

/** An invalid setting; the message names it. */
export class ConfigError extends Error {}

/** @typedef {Record<string, string | undefined>} Environment */

/** Settings that are whole numbers: flag, default, smallest and largest value. */
const NUMBERS = /** @type {const} */ ({
  port: ['port', 3000, 0, 65_535],
  metricsPort: ['metrics-port', 0, 0, 65_535],
  cpuPasses: ['cpu-passes', 4, 1, 65_536],
  modelDelayMs: ['model-delay-ms', 75, 0, Number.MAX_SAFE_INTEGER],
  flushIntervalMs: ['flush-interval-ms', 1000, 10, 60_000],
  flushPhaseJitterMs: ['flush-phase-jitter-ms', 0, 0, 60_000],
  inferenceTimeoutMs: ['inference-timeout-ms', 2000, 1, 600_000],
  inferenceHttpClients: ['inference-http-clients', 2, 1, 4096],
  workerThreads: ['worker-threads', 0, 0, 1024],
  maxBufferedFrames: ['max-buffered-frames', 200, 1, 100_000],
  maxConnections: ['max-connections', 0, 0, Number.MAX_SAFE_INTEGER],
});

const FLAGS = ['host', 'inference-url', ...Object.values(NUMBERS).map(([flag]) => flag)];

/** The output of `--help`. */
export const USAGE = `Speech-to-text gateway on Node.js, ws and node:http2

Usage: node src/main.js [--FLAG VALUE]…
Flags, each with an environment variable of the same meaning (--port is PORT):
${FLAGS.map((flag) => `  --${flag}`).join('\n')}
  --version, --help`;

/**
 * Reads flags and the environment.
 *
 * @param {string[]} args
 * @param {Environment} environment
 * @returns {Config | 'version' | 'help'} the latter two for `--version` and `--help`
 * @throws {ConfigError}
 */
export function parseConfig(args, environment) {
  const flags = parseFlags(args);
  if (flags.get('version')) return 'version';
  if (flags.get('help')) return 'help';
  /** @type {(flag: string, fallback: string) => [name: string, value: string]} */
  const setting = (flag, defaultValue) => {
    const variable = flag.toUpperCase().replaceAll('-', '_');
    const flagValue = flags.get(flag);
    return typeof flagValue === 'string' ? [`--${flag}`, flagValue] : [variable, environment[variable] ?? defaultValue];
  };
  const numbers = Object.entries(NUMBERS).map(([key, [flag, defaultValue, min, max]]) => {
    const [name, value] = setting(flag, String(defaultValue));
    return [key, wholeNumber(name, value, min, max)];
  });
  const config = /** @type {Record<keyof typeof NUMBERS, number>} */ (Object.fromEntries(numbers));
  return {
    ...config,
    host: address(...setting('host', '127.0.0.1')),
    inference: inferenceUrl(...setting('inference-url', 'http://127.0.0.1:9000')),
    workerThreads: config.workerThreads || usableCpus(),
  };
}

/**
 * @param {string[]} args
 * @returns {Map<string, unknown>}
 */
function parseFlags(args) {
  const options = FLAGS.map((flag) => [flag, { type: /** @type {const} */ ('string') }]);
  const switches = ['version', 'help'].map((flag) => [flag, { type: /** @type {const} */ ('boolean') }]);
  try {
    return new Map(Object.entries(parseArgs({ args, options: Object.fromEntries([...options, ...switches]) }).values));
  } catch (error) {
    throw new ConfigError(error instanceof Error ? error.message : String(error));
  }
}

/** @type {(name: string, value: string, min: number, max: number) => number} */
function wholeNumber(name, value, min, max) {
  const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN;
  if (number >= min && number <= max) return number;
  throw new ConfigError(`${name} is "${value}"; it must be a whole number from ${min} to ${max}`);
}

/** @type {(name: string, value: string) => string} */
function address(name, value) {
  if (isIP(value)) return value;
  throw new ConfigError(`${name} is "${value}"; it must be an IP address`);
}

/** @type {(name: string, value: string) => {host: string, port: number}} */
function inferenceUrl(name, value) {
  const parts = /^http:\/\/(?:([\w.-]+)|\[([\da-fA-F:.]+)\]):(\d{1,5})\/?$/.exec(value);
  const port = Number(parts?.[3]);
  const host = parts?.[1] ?? parts?.[2];
  if (host && port >= 1 && port <= 65_535) return { host, port };
  throw new ConfigError(`${name} is "${value}"; it must be http://host:port`);
}

/** CPUs that this process may use: those of its affinity, limited by its cgroup's quota. */
function usableCpus() {
  let quota = Number.POSITIVE_INFINITY;
  try {
    const [time, period] = readFileSync('/sys/fs/cgroup/cpu.max', 'utf8').split(' ').map(Number);
    // "max" is not a number and means no quota.
    if (time && period) quota = time / period;
  } catch {
    // Without cgroup version 2 there is no quota to read.
  }
  return Math.max(1, Math.min(availableParallelism(), Math.floor(quota)));
}
