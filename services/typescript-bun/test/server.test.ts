import { afterEach, test } from 'bun:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';

import { read } from '../src/books.ts';
import { parseConfig } from '../src/config.ts';
import { stats } from '../src/metrics.ts';
import { Server } from '../src/server.ts';

type Answer = (stream: http2.ServerHttp2Stream, bytes: number) => void;

const right: Answer = (stream, bytes) => {
  const frames = bytes / 640;
  stream.respond({ ':status': 200 });
  stream.end(
    `{"rms":0.0,"zero_crossings":0,"checksum":1,"samples":${frames * 1280},"transcript":"now","audio_bytes":${bytes}}`,
  );
};

const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

/** Starts a gateway in front of an inference that handles each request with `answer`. */
async function gateway(answer: Answer, environment: Record<string, string> = {}) {
  const inference = http2.createServer();
  inference.on('stream', (stream: http2.ServerHttp2Stream) => {
    let bytes = 0;
    stream.on('error', () => {});
    stream.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    });
    stream.on('end', () => answer(stream, bytes));
  });
  inference.listen(0, '127.0.0.1');
  await once(inference, 'listening');
  const INFERENCE_URL = `http://127.0.0.1:${(inference.address() as AddressInfo).port}`;
  const own = { PORT: '0', FLUSH_INTERVAL_MS: '50', WORKER_THREADS: '1', INFERENCE_URL };
  const config = parseConfig([], { ...own, ...environment });
  assert.ok(typeof config === 'object');
  const server = new Server(config);
  const port = server.listen(false);
  cleanups.push(async () => {
    await server.drain();
    inference.close();
  });
  return { server, url: `ws://127.0.0.1:${port}/ws/stt`, stats: () => stats(read(server.books.memory)) };
}

async function started(url: string): Promise<WebSocket> {
  const ws = new WebSocket(url);
  await event(ws, 'open');
  ws.send('{"type":"start"}');
  return ws;
}

interface Events {
  open: Event;
  message: MessageEvent;
  close: CloseEvent;
}

function event<Name extends keyof Events>(ws: WebSocket, name: Name): Promise<Events[Name]> {
  return new Promise((resolve) => {
    ws.addEventListener(name, (happened) => resolve(happened as Events[Name]), { once: true });
  });
}

test('frames are answered by a partial that covers them', async () => {
  const { url, stats } = await gateway(right);
  const ws = await started(url);
  for (let count = 0; count < 3; count++) ws.send(Buffer.alloc(640));
  const { data } = await event(ws, 'message');
  const { oldest_frame_seq, frames, samples } = JSON.parse(data);
  assert.deepEqual([oldest_frame_seq, frames, samples], [1, 3, 3840]);
  const { messages } = stats();
  assert.deepEqual([messages.received, messages.consumed, messages.delivered, messages.sent], [4, 1, 3, 1]);
});

test('a failed request is answered by an error, and the session continues', async () => {
  let requests = 0;
  const { url } = await gateway((stream, bytes) => {
    requests += 1;
    if (requests > 1) right(stream, bytes);
    else stream.respond({ ':status': 503 }, { endStream: true });
  });
  const ws = await started(url);
  ws.send(Buffer.alloc(640));
  assert.equal(JSON.parse((await event(ws, 'message')).data).kind, 'http_5xx');
  ws.send(Buffer.alloc(640));
  assert.equal(JSON.parse((await event(ws, 'message')).data).oldest_frame_seq, 2);
});

test('a client that leaves during a request abandons the request and its frames', async () => {
  const asked = Promise.withResolvers<void>();
  const { url, stats } = await gateway(() => asked.resolve());
  const ws = await started(url);
  ws.send(Buffer.alloc(640));
  await asked.promise;
  ws.close(4321);
  assert.equal((await event(ws, 'close')).code, 4321);
  const { connections, messages, inference } = stats();
  assert.deepEqual(connections.closed, { client: 1 });
  assert.deepEqual([messages.queued, messages.dropped, inference.abandoned], [0, { closed: 1 }, 1]);
});

test('a stopped gateway answers waiting audio and sends a Close frame', async () => {
  const { server, url, stats } = await gateway(right, { FLUSH_INTERVAL_MS: '60000' });
  const ws = await started(url);
  ws.send(Buffer.alloc(640));
  while (stats().messages.received < 2) await Bun.sleep(1);
  const [partial, close] = [event(ws, 'message'), event(ws, 'close')];
  await server.drain();
  assert.equal(JSON.parse((await partial).data).frames, 1);
  assert.equal((await close).code, 1001);
  assert.deepEqual(stats().connections.closed, { shutdown: 1 });
});
