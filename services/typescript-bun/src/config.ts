/**
 * The gateway's settings, from flags and from environment variables of the same meaning, as listed in
 * `services/README.md` ("Gateways"). A flag overrides its variable.
 */

import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';

export interface Config {
  /** Address to listen on. */
  host: string;
  /** Port for WebSocket clients; 0 lets the kernel pick one. */
  port: number;
  /** Port of /stats and /metrics; 0 lets the kernel pick one. */
  metricsPort: number;
  /** Address of the inference. */
  inference: { host: string; port: number };
  /** Passes that the inference makes over each batch. */
  cpuPasses: number;
  /** Model delay that partials report; it has no other effect. */
  modelDelayMs: number;
  /** Time between two flush ticks of a session. */
  flushIntervalMs: number;
  /** Upper bound of the random offset of a session's ticks, drawn once per session. */
  flushPhaseJitterMs: number;
  /** Longest time from a tick to the end of the inference's response. */
  inferenceTimeoutMs: number;
  /** HTTP/2 connections to the inference per process. */
  inferenceHttpClients: number;
  /** Number of processes that serve sessions, at least 1. */
  workerThreads: number;
  /** Frames that may wait in a session, besides the batch in flight. */
  maxBufferedFrames: number;
  /** Connections that may be open at once; 0 means no limit. */
  maxConnections: number;
}

/** An invalid setting; the message names it. */
export class ConfigError extends Error {}

type Environment = Record<string, string | undefined>;

/** Settings that are whole numbers: flag, default, smallest and largest value. */
const NUMBERS = {
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
} as const;

const FLAGS = ['host', 'inference-url', ...Object.values(NUMBERS).map(([flag]) => flag)];

/** The output of `--help`. */
export const USAGE = `Speech-to-text gateway on Bun

Usage: bun src/main.ts [--FLAG VALUE]…
Flags, each with an environment variable of the same meaning (--port is PORT):
${FLAGS.map((flag) => `  --${flag}`).join('\n')}
  --version, --help`;

/** Reads flags and the environment. Throws a {@link ConfigError} for an invalid setting. */
export function parseConfig(args: string[], environment: Environment): Config | 'version' | 'help' {
  const flags = parseFlags(args);
  if (flags.get('version')) return 'version';
  if (flags.get('help')) return 'help';
  const setting = (flag: string, fallback: string): [name: string, value: string] => {
    const variable = flag.toUpperCase().replaceAll('-', '_');
    const given = flags.get(flag);
    return typeof given === 'string' ? [`--${flag}`, given] : [variable, environment[variable] ?? fallback];
  };
  const numbers = Object.entries(NUMBERS).map(([key, [flag, fallback, least, most]]) => {
    const [name, value] = setting(flag, String(fallback));
    return [key, wholeNumber(name, value, least, most)];
  });
  const config = Object.fromEntries(numbers) as Record<keyof typeof NUMBERS, number>;
  return {
    ...config,
    host: address(...setting('host', '127.0.0.1')),
    inference: inferenceUrl(...setting('inference-url', 'http://127.0.0.1:9000')),
    workerThreads: config.workerThreads || usableCpus(),
  };
}

function parseFlags(args: string[]): Map<string, unknown> {
  const texts = FLAGS.map((flag) => [flag, { type: 'string' as const }]);
  const switches = ['version', 'help'].map((flag) => [flag, { type: 'boolean' as const }]);
  try {
    return new Map(Object.entries(parseArgs({ args, options: Object.fromEntries([...texts, ...switches]) }).values));
  } catch (error) {
    throw new ConfigError(error instanceof Error ? error.message : String(error));
  }
}

function wholeNumber(name: string, value: string, least: number, most: number): number {
  const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN;
  if (number >= least && number <= most) return number;
  throw new ConfigError(`${name} is "${value}"; it must be a whole number from ${least} to ${most}`);
}

function address(name: string, value: string): string {
  if (isIP(value)) return value;
  throw new ConfigError(`${name} is "${value}"; it must be an IP address`);
}

function inferenceUrl(name: string, value: string): { host: string; port: number } {
  const parts = /^http:\/\/(?:([\w.-]+)|\[([\da-fA-F:.]+)\]):(\d{1,5})\/?$/.exec(value);
  const port = Number(parts?.[3]);
  const host = parts?.[1] ?? parts?.[2];
  if (host && port >= 1 && port <= 65_535) return { host, port };
  throw new ConfigError(`${name} is "${value}"; it must be http://host:port`);
}

/** CPUs that this process may use: those of its affinity, limited by its cgroup's quota. */
function usableCpus(): number {
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
