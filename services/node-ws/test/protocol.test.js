import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { error, flatObject, isStart, parseRecognition, partial, ResponseError } from '../src/protocol.js';
import { golden } from './golden.js';

test('golden first messages are recognized', () => {
  const texts = golden.client.filter((entry) => entry.state === 'first' && entry.text !== undefined);
  assert.ok(texts.length >= 15);
  for (const entry of texts) {
    assert.equal(isStart(Buffer.from(entry.text)), entry.means === 'start', entry.name);
  }
  assert.equal(isStart(Buffer.from('7b2274797065223a227374617274ff227d', 'hex')), false);
});

test('golden inference responses are parsed', () => {
  for (const entry of golden.inference.filter(({ status }) => status < 300)) {
    const parse = () => parseRecognition(Buffer.from(entry.body), entry.frames, entry.cpu_passes);
    if (entry.means === 'partial') assert.ok(parse(), entry.name);
    else assert.throws(parse, ResponseError, entry.name);
  }
});

test('partials equal the golden bytes', () => {
  for (const { name, text, of } of golden.partial) {
    const answer = parseRecognition(Buffer.from(of.body), of.frames, of.cpu_passes);
    const echo = { cpuPasses: of.cpu_passes, modelDelayMs: of.model_delay_ms };
    const span = { oldest: of.oldest_frame_seq, frames: of.frames };
    assert.equal(partial(span, answer, echo, of.flush_lateness_ms), text, name);
  }
});

test('errors equal the golden bytes', () => {
  for (const { name, text, of } of golden.error) {
    const wait = {
      oldestAgeMs: of.oldest_age_ms,
      newestAgeMs: of.newest_age_ms,
      flushLatenessMs: of.flush_lateness_ms,
      inferenceElapsedMs: of.inference_elapsed_ms,
      bufferedFrames: of.gateway_buffer_frames,
    };
    const failure = { kind: of.kind, status: of.inference_status, message: of.message };
    assert.equal(error({ oldest: of.oldest_frame_seq, frames: of.frames }, failure, wait), text, name);
  }
});

test('a flat object has the same members as with JSON.parse', () => {
  const value = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
  );
  fc.assert(
    fc.property(fc.dictionary(fc.string({ unit: 'binary' }), value, { minKeys: 1 }), fc.nat(2), (object, indent) => {
      const members = flatObject(Buffer.from(JSON.stringify(object, null, indent)));
      assert.deepEqual(
        [...(members ?? [])].map(([key, raw]) => [key, JSON.parse(raw)]),
        Object.entries(JSON.parse(JSON.stringify(object))),
      );
    }),
  );
});

test('text that JSON.parse rejects is not a flat object', () => {
  const pieces = ['{', '}', '"a"', '"b"', ':', ',', '1', '-', '.5', 'e3', '01', 'null', '[]', ' ', '\n', '\\', '"'];
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 12 }), (parts) => {
      const text = parts.join('');
      if (flatObject(Buffer.from(text)) !== undefined) JSON.parse(text);
    }),
    { numRuns: 2000 },
  );
});
