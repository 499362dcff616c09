/** The thread of the metrics port. It receives the books' memory and its address, and posts the bound port. */

import { read } from './books.ts';
import { residentBytes, show } from './metrics.ts';

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<{ memory: SharedArrayBuffer; host: string; port: number }>) => {
  const { memory, host, port } = data;
  const server = Bun.serve({
    hostname: host,
    port,
    idleTimeout: 0,
    fetch: (request) => show(request, () => ({ counts: read(memory), residentBytes: residentBytes() })),
  });
  self.postMessage(server.port);
};
