#!/usr/bin/env node
/**
 * Speech-to-text gateway on Node.js and ws. `services/README.md` ("Gateways") is its contract.
 *
 * `main` starts it and says where it listens; `workers` does so for several processes. `server` accepts clients, answers
 * HTTP and upgrades; `session` is one client: `clock` says when it is visited, `backlog` holds its audio, `schedule` says
 * when that is due, `inference` has it recognised, `protocol` is what is read and said. `books` are kept in shared memory,
 * `metrics` shows them, from `metrics-thread`. `config` has the settings.
 */

import cluster from 'node:cluster';
import process from 'node:process';
import { Worker } from 'node:worker_threads';

import { ConfigError, parseConfig, USAGE } from './config.js';
import { NAME, VERSION } from './metrics.js';
import { Server } from './server.js';
import { announce, runWorkers, stopSignal } from './workers.js';

/** @typedef {import('node:net').AddressInfo} AddressInfo */

/** Memory for the metrics thread's short-lived objects, in MB: with the default it grows for no gain. */
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
 * Serves in this process until SIGTERM or SIGINT.
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
 * Starts the thread of the metrics port.
 *
 * @param {Server} server
 * @param {import('./config.js').Config} config
 * @returns {Promise<AddressInfo>}
 */
function startMetrics(server, config) {
  // Processes of one gateway each have a port for their parent.
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
