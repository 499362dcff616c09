#!/usr/bin/env node
/**
 * Speech-to-text gateway on Node.js and ws. `services/README.md` ("Gateways") is its contract.
 *
 * `main` reads the settings (`config`), starts the gateway and prints the ready line; `workers` does so for several
 * processes. `server` accepts connections, answers HTTP requests and upgrades. `session` serves one client: `clock`
 * visits it, `backlog` holds its audio, `schedule` computes when its ticks are due, `inference` sends requests,
 * `protocol` parses and writes the messages. `books` keeps counters in shared memory; `metrics` serves them from
 * `metrics-thread`.
 */

import cluster from 'node:cluster';
import process from 'node:process';
import { Worker } from 'node:worker_threads';

import { ConfigError, parseConfig, USAGE } from './config.js';
import { NAME, VERSION } from './metrics.js';
import { Server } from './server.js';
import { announce, runWorkers, stopSignal } from './workers.js';

/** @typedef {import('node:net').AddressInfo} AddressInfo */

/** Size of the metrics thread's young generation, in MB. The default lets it grow without benefit. */
const METRICS_YOUNG_MB = 1;

try {
  await main();
} catch (error) {
  console.error(`${NAME}: ${error instanceof ConfigError ? error.message : error}`);
  process.exit(error instanceof ConfigError ? 2 : 1);
}

async function main() {
  const config = parseConfig(process.argv.slice(2), process.env);
  if (config === 'version') console.log(`${NAME} ${VERSION} (Node.js ${process.versions.node})`);
  else if (config === 'help') console.log(USAGE);
  else if (config.workerThreads > 1 && cluster.isPrimary) await runWorkers(config);
  else await serve(config);
}

/**
 * Serves clients in this process until SIGTERM or SIGINT.
 *
 * @param {import('./config.js').Config} config
 */
async function serve(config) {
  const stop = stopSignal();
  const server = new Server(config);
  const metricsAddress = await startMetrics(server, config);
  announce(await server.listen(), metricsAddress);
  await stop;
  await server.drain();
  process.exit(0);
}

/**
 * Starts the thread of the metrics port. Resolves to the bound address.
 *
 * @param {Server} server
 * @param {import('./config.js').Config} config
 * @returns {Promise<AddressInfo>}
 */
function startMetrics(server, config) {
  // Each of several processes has a metrics port of its own, which its parent reads.
  const port = cluster.isWorker ? 0 : config.metricsPort;
  const workerData = { memory: server.books.memory, host: config.host, port };
  const thread = new Worker(new URL('./metrics-thread.js', import.meta.url), {
    workerData,
    resourceLimits: { maxYoungGenerationSizeMb: METRICS_YOUNG_MB },
  });
  return new Promise((resolve, reject) => {
    thread.once('message', resolve);
    thread.once('error', reject);
  });
}
