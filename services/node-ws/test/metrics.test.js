import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AT, add, addLateness, Books, read, sum } from '../src/books.js';
import { prometheus, stats } from '../src/metrics.js';

test('a reader gets all changes of an update, and sums are correct', () => {
  const books = new Books();
  books.update((counts) => {
    add(counts, AT.received, 3);
    add(counts, AT.waiting, 3);
    counts[AT.inFlightPerConnectionMax] = 1;
  });
  const reading = read(books.memory);
  const { messages } = stats(sum([reading, reading]));
  assert.equal(messages.received, 6);
  assert.equal(messages.queued, 6);
  assert.equal(sum([reading, reading])[AT.inFlightPerConnectionMax], 1);
});

test('lateness is counted in the bucket of its bound, or beyond the last', () => {
  const books = new Books();
  for (const lateness of [0.5, 0.6, 9000]) books.update((counts) => addLateness(counts, lateness));
  const text = prometheus({ counts: read(books.memory), residentBytes: 7 });
  assert.match(text, /_bucket{le="0.0005"} 1\n.*_bucket{le="0.001"} 2\n/);
  assert.match(text, /_bucket{le="2.5"} 2\n.*_bucket{le="\+Inf"} 3\n/);
  assert.match(text, /service_flush_lateness_seconds_count 3\n/);
});

test('every sample follows its help and its type', () => {
  const text = prometheus({ counts: read(new Books().memory), residentBytes: 7 });
  const lines = text.trimEnd().split('\n');
  for (const line of lines.filter((each) => !each.startsWith('#'))) {
    const name = line.split(/[ {]/)[0]?.replace(/_(bucket|sum|count)$/, '');
    assert.ok(
      lines.some((each) => each.startsWith(`# TYPE ${name} `)),
      line,
    );
  }
});
