import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Clock } from '../src/clock.js';
import { Schedule } from '../src/schedule.js';

test('a socket is visited at the tick and at least every 450 ms before', () => {
  const schedule = new Schedule(1000, 1000);
  const visits = [];
  for (let now = 0; now < 1000; visits.push(now)) now = schedule.nextVisit(now + 1e-6);
  assert.deepEqual(visits.map(Math.round), [333, 667, 1000]);
  assert.equal(schedule.nextVisit(1000), 1000);
});

test('a first tick after a longer time has the same pauses', () => {
  const schedule = new Schedule(1730, 1000);
  assert.equal(Math.round(schedule.nextVisit(0)), 63);
});

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

test('the clock visits in the order of due times and opens before it visits', async () => {
  const clock = new Clock();
  /** @type {string[]} */
  const seen = [];
  const start = performance.now();
  await new Promise((resolve) => {
    for (const delay of [30, 5, 60, 10, 45, 20]) {
      clock.add(start + delay, {
        open: () => seen.push(`open ${delay}`),
        visit: (now) => {
          assert.ok(now >= start + delay);
          seen.push(`visit ${delay}`);
          if (delay === 60) resolve(undefined);
          return undefined;
        },
      });
    }
  });
  assert.deepEqual(
    seen.filter((each) => each.startsWith('visit')),
    [5, 10, 20, 30, 45, 60].map((delay) => `visit ${delay}`),
  );
  for (const delay of [5, 10, 20, 30, 45, 60]) {
    assert.ok(seen.indexOf(`open ${delay}`) < seen.indexOf(`visit ${delay}`));
  }
});
