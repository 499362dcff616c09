/** The thread of the metrics port. It receives the books' memory and its address, and posts the bound address. */

import { parentPort, workerData } from 'node:worker_threads';

import { read } from './books.js';
import { metricsServer, residentBytes } from './metrics.js';

const { memory, host, port } = workerData;
const server = metricsServer(() => ({ counts: read(memory), residentBytes: residentBytes() }));
server.listen({ host, port, backlog: 8192 }, () => parentPort?.postMessage(server.address()));
