/**
 * Several processes behind one ready line. Each serves sessions on the same port; their parent adds up their books,
 * forwards SIGTERM, and waits for them.
 */

import { isIPv6 } from 'node:net';

import { AT, sum } from './books.ts';
import type { Config } from './config.ts';
import { type Reading, residentBytes, show } from './metrics.ts';

/** Time limit for reading the counters of one process, in milliseconds. */
const READING_TIMEOUT_MS = 2000;

interface Ready {
  port: number;
  metricsPort: number;
}

/** Whether this process is one of several that a parent has started. */
export function isWorker(): boolean {
  return process.send !== undefined;
}

/** Resolves at the first SIGTERM or SIGINT. Call it before the ready line, so that no signal is missed. */
export function stopSignal(): Promise<unknown> {
  return new Promise((resolve) => {
    process.on('SIGTERM', resolve);
    process.on('SIGINT', resolve);
  });
}

/** Prints the ready line, or sends the ports to the parent if this process is a worker. */
export function announce(host: string, port: number, metricsPort: number): void {
  if (process.send) {
    process.send({ port, metricsPort });
    return;
  }
  const at = (of: number) => (isIPv6(host) ? `[${host}]:${of}` : `${host}:${of}`);
  const line = { event: 'ready', address: at(port), metrics_address: at(metricsPort), pid: process.pid };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Runs the worker processes until SIGTERM or SIGINT. */
export async function runWorkers(config: Config): Promise<void> {
  const stop = stopSignal();
  const [first = 0, ...others] = shares(config);
  let isStopping = false;
  const start = (port: number, limit: number) => {
    const worker = fork(port, limit);
    worker.process.exited.then((code) => {
      if (isStopping) return;
      console.error(`worker ${worker.process.pid} ended by itself: exit code ${code}`);
      for (const each of workers) each.process.kill();
      process.exit(1);
    });
    return worker;
  };
  const workers: ReturnType<typeof fork>[] = [];
  // The kernel may pick the port of the first process; the others share it.
  workers.push(start(config.port, first));
  const { port } = await (workers[0] as ReturnType<typeof fork>).ready;
  for (const limit of others) workers.push(start(port, limit));
  const ready = await Promise.all(workers.map((worker) => worker.ready));
  const ports = ready.map((each) => each.metricsPort);
  const server = Bun.serve({
    hostname: config.host,
    port: config.metricsPort,
    fetch: (request) => show(request, () => readAll(config.host, ports, isStopping)),
  });
  announce(config.host, port, server.port ?? 0);
  await stop;
  isStopping = true;
  for (const worker of workers) worker.process.kill('SIGTERM');
  await Promise.all(workers.map((worker) => worker.process.exited));
  process.exit(0);
}

function fork(port: number, limit: number) {
  const { promise: ready, resolve } = Promise.withResolvers<Ready>();
  const own = ['--port', `${port}`, '--metrics-port', '0', '--worker-threads', '1', '--max-connections', `${limit}`];
  const child = Bun.spawn({
    // If a flag is given twice, the last one wins.
    cmd: [process.execPath, ...process.execArgv, Bun.main, ...process.argv.slice(2), ...own],
    stdio: ['ignore', 'inherit', 'inherit'],
    ipc: (message: Ready) => resolve(message),
  });
  return { process: child, ready };
}

/** Divides the connection limit among the processes. There are at most as many processes as connections. */
export function shares({ workerThreads, maxConnections }: Pick<Config, 'workerThreads' | 'maxConnections'>): number[] {
  if (maxConnections === 0) return new Array(workerThreads).fill(0);
  const processes = Math.min(workerThreads, maxConnections);
  const smallestShare = Math.floor(maxConnections / processes);
  return Array.from({ length: processes }, (_, index) => smallestShare + (index < maxConnections % processes ? 1 : 0));
}

async function readAll(host: string, ports: number[], isStopping: boolean): Promise<Reading> {
  const readings = await Promise.all(ports.map((port) => readOne(host, port)));
  const counts = sum(readings.map((reading) => reading.counts));
  if (isStopping) counts[AT.accepting] = 0;
  const own = residentBytes();
  const memory = readings.reduce((total, reading) => total + (reading.residentBytes ?? 0), own ?? 0);
  return { counts, residentBytes: own === undefined ? undefined : memory };
}

async function readOne(host: string, port: number): Promise<{ counts: number[]; residentBytes?: number }> {
  const url = `http://${isIPv6(host) ? `[${host}]` : host}:${port}/counts`;
  const response = await fetch(url, { signal: AbortSignal.timeout(READING_TIMEOUT_MS) });
  return (await response.json()) as { counts: number[]; residentBytes?: number };
}
