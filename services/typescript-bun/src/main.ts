#!/usr/bin/env bun
/**
 * Speech-to-text gateway on Bun. `services/README.md` ("Gateways") is its contract.
 *
 * `main` reads the settings (`config`), starts the gateway and prints the ready line; `workers` does so for several
 * processes. `server` accepts connections, answers HTTP requests and upgrades. `session` serves one client: `backlog`
 * holds its audio, `clock` runs its ticks, `schedule` computes when they are due, `inference` sends requests,
 * `protocol` parses and writes the messages. `books` keeps counters in shared memory; `metrics` serves them from
 * `metrics-thread`.
 */

import { type Config, ConfigError, parseConfig, USAGE } from './config.ts';
import { NAME, VERSION } from './metrics.ts';
import { Server } from './server.ts';
import { announce, isWorker, runWorkers, stopSignal } from './workers.ts';

try {
  await main();
} catch (error) {
  console.error(`${NAME}: ${error instanceof ConfigError ? error.message : error}`);
  process.exit(error instanceof ConfigError ? 2 : 1);
}

async function main(): Promise<void> {
  const config = parseConfig(process.argv.slice(2), process.env);
  if (config === 'version') console.log(`${NAME} ${VERSION} (Bun ${Bun.version})`);
  else if (config === 'help') console.log(USAGE);
  else if (config.workerThreads > 1) await runWorkers(config);
  else await serve(config);
}

/** Serves clients in this process until SIGTERM or SIGINT. */
async function serve(config: Config): Promise<void> {
  const stop = stopSignal();
  const server = new Server(config);
  const metricsPort = await startMetrics(server, config);
  announce(config.host, server.listen(isWorker()), metricsPort);
  await stop;
  await server.drain();
  process.exit(0);
}

/** Starts the thread of the metrics port. Resolves to the bound port. */
function startMetrics(server: Server, config: Config): Promise<number> {
  const thread = new Worker(new URL('./metrics-thread.ts', import.meta.url), { smol: true });
  thread.postMessage({ memory: server.books.memory, host: config.host, port: config.metricsPort });
  return new Promise((resolve, reject) => {
    thread.onmessage = ({ data }: MessageEvent<number>) => resolve(data);
    thread.onerror = (event) => reject(new Error(event.message));
  });
}
