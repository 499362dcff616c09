import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { Backlog, BatchPool } from '../src/backlog.js';
import { FRAME_BYTES } from '../src/protocol.js';

/** @param {number} number */
const frame = (number) => Buffer.alloc(FRAME_BYTES, number);
/** @param {Uint8Array} audio */
const numbers = (audio) => Array.from({ length: audio.length / FRAME_BYTES }, (_, index) => audio[index * FRAME_BYTES]);

test('frames are taken in order, with the times at which they were read', () => {
  const backlog = new Backlog(new BatchPool(4), 10);
  for (const number of [1, 2, 3]) backlog.append(frame(number));
  assert.deepEqual(backlog.admit(100), { received: 3, dropped: 0 });
  for (const number of [4, 5, 6]) backlog.append(frame(number));
  assert.deepEqual(backlog.admit(200), { received: 3, dropped: 0 });
  const { audio, ...taken } = backlog.take();
  assert.deepEqual(numbers(audio), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(taken, { span: { oldest: 1, frames: 6 }, oldestReadAt: 100, newestReadAt: 200 });
  assert.equal(backlog.waiting, 0);
});

test('frames dropped before a report are reported together', () => {
  const backlog = new Backlog(new BatchPool(2), 2);
  for (let number = 1; number <= 5; number++) {
    backlog.append(frame(number));
    backlog.admit(number * 10);
  }
  assert.deepEqual(backlog.takeOverflow(), { span: { oldest: 1, frames: 3 }, oldestReadAt: 10, newestReadAt: 30 });
  assert.equal(backlog.takeOverflow(), undefined);
  assert.deepEqual(backlog.take().span, { oldest: 4, frames: 2 });
});

test('random appends, drops and batches cover each frame once', () => {
  const step = fc.oneof(fc.record({ frames: fc.nat(12) }), fc.constant({ take: true }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.integer({ min: 1, max: 9 }), (steps, max) => {
      const pool = new BatchPool(Math.min(3, max));
      const backlog = new Backlog(pool, max);
      let [came, covered] = [0, 0];
      for (const each of steps) {
        if ('frames' in each) {
          for (let count = 0; count < each.frames; count++) backlog.append(frame(++came % 251));
          backlog.admit(came);
          assert.ok(backlog.waiting <= max);
          continue;
        }
        const overflow = backlog.takeOverflow();
        if (overflow) {
          assert.equal(overflow.span.oldest, covered + 1);
          covered += overflow.span.frames;
        }
        if (backlog.waiting === 0) continue;
        const { audio, span } = backlog.take();
        assert.equal(span.oldest, covered + 1);
        assert.deepEqual(
          numbers(audio),
          Array.from({ length: span.frames }, (_, index) => (covered + 1 + index) % 251),
        );
        covered += span.frames;
        pool.release(audio);
      }
    }),
  );
});

test('the memory of a released batch is used again', () => {
  const pool = new BatchPool(2);
  const audio = pool.take();
  pool.release(audio.subarray(0, FRAME_BYTES));
  assert.equal(pool.take().buffer, audio.buffer);
  pool.release(Buffer.alloc(1));
  assert.equal(pool.take().length, 2 * FRAME_BYTES);
});
