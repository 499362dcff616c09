import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { test } from 'node:test';

import { WebSocket } from 'ws';

import { read } from '../src/books.js';
import { parseConfig } from '../src/config.js';
import { stats } from '../src/metrics.js';
import { Server } from '../src/server.js';

/** @typedef {(stream: http2.ServerHttp2Stream, bytes: number) => void} Answer */

/** @type {Answer} */
const respondValid = (stream, bytes) => {
  const frames = bytes / 640;
  stream.respond({ ':status': 200 });
  stream.end(
    `{"rms":0.0,"zero_crossings":0,"checksum":1,"samples":${frames * 1280},"transcript":"now","audio_bytes":${bytes}}`,
  );
};

/**
 * Starts a gateway in front of an inference that handles each request with `answer`.
 *
 * @param {import('node:test').TestContext} context
 * @param {Answer} answer
 * @param {Record<string, string>} [environment]
 */
async function gateway(context, answer, environment = {}) {
  const inference = http2.createServer();
  inference.on('stream', (stream) => {
    let bytes = 0;
    stream.on('error', () => {});
    stream.on('data', (chunk) => {
      bytes += chunk.length;
    });
    stream.on('end', () => answer(/** @type {http2.ServerHttp2Stream} */ (stream), bytes));
  });
  inference.listen(0, '127.0.0.1');
  await once(inference, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (inference.address());
  const INFERENCE_URL = `http://127.0.0.1:${port}`;
  const config = parseConfig([], {
    PORT: '0',
    FLUSH_INTERVAL_MS: '50',
    WORKER_THREADS: '1',
    INFERENCE_URL,
    ...environment,
  });
  assert.ok(typeof config === 'object');
  const server = new Server(config);
  const address = await server.listen();
  context.after(async () => {
    await server.drain();
    inference.close();
  });
  return { server, url: `ws://127.0.0.1:${address.port}/ws/stt`, stats: () => stats(read(server.books.memory)) };
}

/** @param {string} url */
async function started(url) {
  const ws = new WebSocket(url);
  await once(ws, 'open');
  ws.send('{"type":"start"}');
  return ws;
}

test('frames are answered by a partial that covers them', async (context) => {
  const { url, stats } = await gateway(context, respondValid);
  const ws = await started(url);
  for (let count = 0; count < 3; count++) ws.send(Buffer.alloc(640));
  const [text] = await once(ws, 'message');
  const { oldest_frame_seq, frames, samples } = JSON.parse(text.toString());
  assert.deepEqual([oldest_frame_seq, frames, samples], [1, 3, 3840]);
  const { messages } = stats();
  assert.deepEqual([messages.received, messages.consumed, messages.delivered, messages.sent], [4, 1, 3, 1]);
});

test('a failed request is answered by an error, and the session continues', async (context) => {
  let requests = 0;
  const { url } = await gateway(context, (stream, bytes) => {
    requests += 1;
    if (requests > 1) respondValid(stream, bytes);
    else stream.respond({ ':status': 503 }, { endStream: true });
  });
  const ws = await started(url);
  ws.send(Buffer.alloc(640));
  const [error] = await once(ws, 'message');
  assert.equal(JSON.parse(error.toString()).kind, 'http_5xx');
  ws.send(Buffer.alloc(640));
  const [partial] = await once(ws, 'message');
  assert.equal(JSON.parse(partial.toString()).oldest_frame_seq, 2);
});

test('a client that leaves during a request abandons the request and its frames', async (context) => {
  const requested = deferred();
  const { url, stats } = await gateway(context, () => requested.resolve(undefined));
  const ws = await started(url);
  ws.send(Buffer.alloc(640));
  await requested.promise;
  ws.close(4321);
  const [code] = await once(ws, 'close');
  assert.equal(code, 4321);
  const { connections, messages, inference } = stats();
  assert.deepEqual(connections.closed, { client: 1 });
  assert.deepEqual([messages.queued, messages.dropped, inference.abandoned], [0, { closed: 1 }, 1]);
});

test('a stopped gateway answers waiting audio and sends a Close frame', async (context) => {
  const { server, url, stats } = await gateway(context, respondValid, { FLUSH_INTERVAL_MS: '60000' });
  const ws = await started(url);
  ws.send(Buffer.alloc(640));
  // The pong shows that everything sent before the ping has been read.
  ws.ping();
  await once(ws, 'pong');
  const partial = once(ws, 'message');
  const close = once(ws, 'close');
  await server.drain();
  assert.equal(JSON.parse((await partial)[0].toString()).frames, 1);
  assert.equal((await close)[0], 1001);
  assert.deepEqual(stats().connections.closed, { shutdown: 1 });
});

function deferred() {
  /** @type {(value: unknown) => void} */
  let resolve = () => {};
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
