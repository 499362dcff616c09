import { test } from 'bun:test';
import assert from 'node:assert/strict';

import { Clock } from '../src/clock.ts';
import { Schedule } from '../src/schedule.ts';

test('a tick runs once and returns its lateness', () => {
  const schedule = new Schedule(1000, 100);
  assert.equal(schedule.tick(999), undefined);
  assert.equal(schedule.tick(1003), 3);
  assert.equal(schedule.tick(1004), undefined);
  assert.equal(schedule.tick(1100), 0);
});

test('missed ticks are skipped and lateness starts over', () => {
  const schedule = new Schedule(1000, 1000);
  assert.equal(schedule.tick(4400), 3400);
  assert.equal(schedule.tick(4999), undefined);
  assert.equal(schedule.tick(5002), 2);
});

test('the clock visits in the order of due times, and again at the returned time', async () => {
  const clock = new Clock();
  const seen: number[] = [];
  const start = performance.now();
  await new Promise<void>((resolve) => {
    for (const delay of [30, 5, 60, 10, 45, 20]) {
      clock.add(start + delay, {
        visit: (now) => {
          assert.ok(now >= start + delay);
          seen.push(delay);
          if (seen.length === 7) resolve();
          return delay === 60 && seen.length === 6 ? now + 1 : undefined;
        },
      });
    }
  });
  assert.deepEqual(seen, [5, 10, 20, 30, 45, 60, 60]);
});
