/**
 * Several processes behind one ready line. Each serves sessions on the same port; their parent adds up their books,
 * forwards SIGTERM, and waits for them.
 */

import cluster from 'node:cluster';
import { get } from 'node:http';
import { isIPv6 } from 'node:net';
import process from 'node:process';

import { AT, sum } from './books.js';
import { metricsServer, residentBytes } from './metrics.js';

/** @typedef {import('node:net').AddressInfo} AddressInfo */
/** @typedef {{event: 'ready', address: AddressInfo, metricsAddress: AddressInfo}} Ready */

/** Time limit for reading the counters of one process, in milliseconds. */
const READING_TIMEOUT_MS = 2000;

/** Resolves at the first SIGTERM or SIGINT. Call it before the ready line, so that no signal is missed. */
export function stopSignal() {
  return new Promise((resolve) => {
    process.on('SIGTERM', resolve);
    process.on('SIGINT', resolve);
  });
}

/**
 * Prints the ready line, or sends the addresses to the parent if this process is a worker.
 *
 * @param {AddressInfo} address
 * @param {AddressInfo} metricsAddress
 */
export function announce(address, metricsAddress) {
  if (cluster.isWorker) {
    process.send?.({ event: 'ready', address, metricsAddress });
    return;
  }
  const line = { event: 'ready', address: text(address), metrics_address: text(metricsAddress), pid: process.pid };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** @param {AddressInfo} address */
function text({ address, port }) {
  return isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
}

/**
 * Runs the worker processes until SIGTERM or SIGINT.
 *
 * @param {import('./config.js').Config} config
 */
export async function runWorkers(config) {
  const stop = stopSignal();
  const limits = shares(config);
  const exits = [];
  const readiness = [];
  let isStopping = false;
  for (const limit of limits) {
    const worker = cluster.fork({ WORKER_THREADS: '1', MAX_CONNECTIONS: String(limit) });
    readiness.push(ready(worker));
    exits.push(new Promise((resolve) => worker.once('exit', resolve)));
    worker.once('exit', (code, signal) => {
      if (isStopping) return;
      console.error(`worker ${worker.process.pid} ended by itself: ${signal ?? `exit code ${code}`}`);
      process.exit(1);
    });
  }
  const children = await Promise.all(readiness);
  const reading = () =>
    readAll(
      children.map((child) => child.metricsAddress),
      isStopping,
    );
  const server = metricsServer(reading);
  server.listen({ host: config.host, port: config.metricsPort }, () => {
    announce(/** @type {Ready} */ (children[0]).address, /** @type {AddressInfo} */ (server.address()));
  });
  await stop;
  isStopping = true;
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGTERM');
  await Promise.all(exits);
  process.exit(0);
}

/**
 * Divides the connection limit among the processes. There are at most as many processes as connections.
 *
 * @param {Pick<import('./config.js').Config, 'workerThreads' | 'maxConnections'>} config
 */
export function shares({ workerThreads, maxConnections }) {
  if (maxConnections === 0) return new Array(workerThreads).fill(0);
  const processes = Math.min(workerThreads, maxConnections);
  const smallestShare = Math.floor(maxConnections / processes);
  return Array.from({ length: processes }, (_, index) => smallestShare + (index < maxConnections % processes ? 1 : 0));
}

/**
 * @param {import('node:cluster').Worker} worker
 * @returns {Promise<Ready>}
 */
function ready(worker) {
  return new Promise((resolve) => worker.once('message', resolve));
}

/**
 * @param {AddressInfo[]} addresses
 * @param {boolean} isStopping
 */
async function readAll(addresses, isStopping) {
  const readings = await Promise.all(addresses.map(readOne));
  const counts = sum(readings.map((reading) => reading.counts));
  if (isStopping) counts[AT.accepting] = 0;
  const ownBytes = residentBytes();
  const memory = readings.reduce((total, reading) => total + (reading.residentBytes ?? 0), ownBytes ?? 0);
  return { counts, residentBytes: ownBytes === undefined ? undefined : memory };
}

/**
 * @param {AddressInfo} address
 * @returns {Promise<{counts: number[], residentBytes?: number}>}
 */
function readOne({ address, port }) {
  return new Promise((resolve, reject) => {
    const request = get({ host: address, port, path: '/counts', timeout: READING_TIMEOUT_MS }, async (response) => {
      try {
        resolve(JSON.parse(Buffer.concat(await response.toArray()).toString()));
      } catch (error) {
        reject(error);
      }
    });
    request.on('timeout', () => request.destroy(new Error('a worker does not answer')));
    request.on('error', reject);
  });
}
