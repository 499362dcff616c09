import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ConfigError, parseConfig } from '../src/config.js';
import { shares } from '../src/workers.js';

/** @type {(...args: Parameters<typeof parseConfig>) => import('../src/config.js').Config} */
function settings(args, environment) {
  const config = parseConfig(args, environment);
  assert.ok(typeof config === 'object');
  return config;
}

test('a flag overrides its variable, and the variable the default', () => {
  assert.equal(settings([], {}).flushIntervalMs, 1000);
  assert.equal(settings([], { FLUSH_INTERVAL_MS: '50' }).flushIntervalMs, 50);
  assert.equal(settings(['--flush-interval-ms', '20'], { FLUSH_INTERVAL_MS: '50' }).flushIntervalMs, 20);
});

test('the inference URL must have a host and a port', () => {
  const at = (/** @type {string} */ url) => settings(['--inference-url', url], {}).inference;
  assert.deepEqual(at('http://127.0.0.1:9000'), { host: '127.0.0.1', port: 9000 });
  assert.deepEqual(at('http://inference-sim:80/'), { host: 'inference-sim', port: 80 });
  assert.deepEqual(at('http://[::1]:9000'), { host: '::1', port: 9000 });
  for (const bad of [
    'https://a:1',
    'http://a',
    'http://a:0',
    'http://a:x',
    'http://:1',
    'http://a:1/b',
    'http://u@a:1',
    '',
  ]) {
    assert.throws(() => at(bad), ConfigError, bad);
  }
});

test('an invalid value is rejected with the name of its setting', () => {
  const bad = {
    PORT: '65536',
    HOST: 'localhost',
    CPU_PASSES: '0',
    MODEL_DELAY_MS: '-1',
    FLUSH_INTERVAL_MS: '0',
    FLUSH_PHASE_JITTER_MS: '60001',
    INFERENCE_TIMEOUT_MS: '0',
    INFERENCE_HTTP_CLIENTS: '0',
    WORKER_THREADS: 'many',
    MAX_BUFFERED_FRAMES: '0',
    MAX_CONNECTIONS: '1.5',
  };
  for (const [name, value] of Object.entries(bad)) {
    const flag = `--${name.toLowerCase().replaceAll('_', '-')}`;
    assert.throws(() => parseConfig([], { [name]: value }), new RegExp(`${name} is "${value}"`));
    assert.throws(() => parseConfig([`${flag}=${value}`], {}), new RegExp(`${flag} is "${value}"`));
  }
  assert.throws(() => parseConfig(['--colour=red'], {}), ConfigError);
});

test('without a number of processes there is at least one', () => {
  assert.ok(settings([], {}).workerThreads >= 1);
  assert.equal(settings(['--worker-threads', '3'], {}).workerThreads, 3);
});

test('processes share the connections that may be open', () => {
  assert.deepEqual(shares({ workerThreads: 3, maxConnections: 0 }), [0, 0, 0]);
  assert.deepEqual(shares({ workerThreads: 3, maxConnections: 8 }), [3, 3, 2]);
  assert.deepEqual(shares({ workerThreads: 3, maxConnections: 2 }), [1, 1]);
});
