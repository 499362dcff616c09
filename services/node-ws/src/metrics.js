/**
 * The metrics port: `/healthz`, `/readyz`, `/stats`, `/metrics`. It has its own thread and reads the books from
 * shared memory, so it responds while the sessions' thread is busy. `/counts` is only for the parent of several
 * processes.
 */

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

import { AT, bufferedBytes, LABELS, LATENESS_BOUNDS } from './books.js';

export const NAME = 'node-ws';
/** Version of this gateway, from package.json. */
export const VERSION = /** @type {string} */ (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')).version
);

/**
 * A reading of the books and of the process's memory.
 *
 * @typedef {object} Reading
 * @property {Float64Array} counts
 * @property {number | undefined} residentBytes undefined where there is no /proc
 */

const TEXT = 'text/plain; version=0.0.4; charset=utf-8';
const PAGE_BYTES = 4096;

/** Resident memory of this process in bytes; undefined where there is no /proc. */
export function residentBytes() {
  try {
    return Number(readFileSync('/proc/self/statm', 'utf8').split(' ')[1]) * PAGE_BYTES;
  } catch {
    return undefined;
  }
}

/**
 * Creates the server of the metrics port, which isn't listening yet.
 *
 * @param {() => Reading | Promise<Reading>} reading
 */
export function metricsServer(reading) {
  return createServer(async (request, response) => {
    const path = request.url?.split('?')[0];
    try {
      const page = path === '/healthz' ? PLAIN_OK : show(path, await reading());
      response.writeHead(page.status, {
        'content-type': page.type,
        'content-length': Buffer.byteLength(page.body),
      });
      response.end(page.body);
    } catch (error) {
      response.writeHead(503).end(`${error}\n`);
    }
  });
}

const PLAIN_OK = { status: 200, type: TEXT, body: 'ok\n' };

/**
 * @param {string | undefined} path
 * @param {Reading} reading
 */
function show(path, reading) {
  switch (path) {
    case '/readyz':
      return reading.counts[AT.accepting] ? PLAIN_OK : { status: 503, type: TEXT, body: 'stopping\n' };
    case '/stats':
      return { status: 200, type: 'application/json', body: JSON.stringify(stats(reading.counts)) };
    case '/metrics':
      return { status: 200, type: TEXT, body: prometheus(reading) };
    case '/counts': {
      const { counts, residentBytes } = reading;
      return { status: 200, type: 'application/json', body: JSON.stringify({ counts: [...counts], residentBytes }) };
    }
    default:
      return { status: 404, type: TEXT, body: 'not found\n' };
  }
}

/**
 * Returns the counters of a family with their labels.
 *
 * @param {Float64Array} counts
 * @param {keyof typeof LABELS} family
 * @returns {[string, number][]}
 */
function labelled(counts, family) {
  const places = /** @type {Record<string, number>} */ (AT[family]);
  return LABELS[family].map((label) => [label, counts[places[label] ?? -1] ?? 0]);
}

/**
 * Returns the body of `/stats`.
 *
 * @param {Float64Array} counts
 */
export function stats(counts) {
  /** @param {number} at */
  const of = (at) => counts[at] ?? 0;
  /** @param {keyof typeof LABELS} family */
  const happened = (family) => Object.fromEntries(labelled(counts, family).filter(([, count]) => count > 0));
  return {
    service: NAME,
    version: VERSION,
    uptime_seconds: process.uptime(),
    connections: {
      accepted: of(AT.accepted),
      open: of(AT.open),
      closed: happened('closed'),
      rejected: happened('rejected'),
    },
    messages: {
      received: of(AT.received),
      consumed: of(AT.consumed),
      delivered: of(AT.delivered),
      dropped: happened('dropped'),
      queued: of(AT.waiting) + of(AT.inFlight),
      malformed: 0,
      sent: of(AT.sent),
      send_dropped: {},
    },
    bytes: { received: of(AT.bytesReceived), sent: of(AT.bytesSent) },
    application: null,
    inference: {
      requests: of(AT.requests),
      answered: of(AT.answered),
      failed: happened('failed'),
      abandoned: of(AT.abandoned),
      in_flight: of(AT.requestsInFlight),
      ticks_skipped: of(AT.ticks.skipped),
      buffered_bytes: bufferedBytes(counts),
    },
  };
}

/**
 * Metrics without labels: name, help, index in the books or a function of them.
 *
 * @type {[name: string, help: string, value: number | ((counts: Float64Array) => number)][]}
 */
const NUMBERS = [
  ['service_messages_received_total', 'Complete data messages taken from sockets', AT.received],
  ['service_messages_consumed_total', 'Messages that the service answered itself', AT.consumed],
  ['service_messages_delivered_total', 'Frames answered by a partial', AT.delivered],
  ['service_messages_queued', 'Frames that wait or are in flight', (c) => (c[AT.waiting] ?? 0) + (c[AT.inFlight] ?? 0)],
  ['service_messages_malformed_total', 'Text passed on that was no JSON object', () => 0],
  ['service_messages_sent_total', 'Data messages handed to sockets', AT.sent],
  ['service_connections_accepted_total', 'Connections upgraded and registered', AT.accepted],
  ['service_connections_open', 'Connections open now', AT.open],
  ['service_bytes_received_total', 'WebSocket bytes read from sockets', AT.bytesReceived],
  ['service_bytes_sent_total', 'WebSocket bytes written to sockets', AT.bytesSent],
  ['service_inference_requests_total', 'Requests begun', AT.requests],
  ['service_inference_answered_total', 'Requests whose answer became a partial', AT.answered],
  ['service_inference_abandoned_total', 'Requests whose connection ended first', AT.abandoned],
  ['service_inference_in_flight', 'Requests in flight now', AT.requestsInFlight],
  [
    'service_inference_in_flight_per_connection_max',
    'The most requests that were ever in flight for one connection',
    AT.inFlightPerConnectionMax,
  ],
  ['service_buffered_bytes', 'Audio held, waiting or in flight', bufferedBytes],
];

/** @type {[name: string, help: string, label: string, family: keyof typeof LABELS][]} */
const FAMILIES = [
  ['service_messages_dropped_total', 'Messages without a partial', 'reason', 'dropped'],
  ['service_connections_closed_total', 'Connections that ended', 'reason', 'closed'],
  ['service_connections_rejected_total', 'Connections refused', 'reason', 'rejected'],
  ['service_inference_failed_total', 'Requests whose frames got an error', 'kind', 'failed'],
  ['service_flush_ticks_total', 'Flush ticks by what they found', 'outcome', 'ticks'],
];

/**
 * Returns the body of `/metrics`, in Prometheus' text format.
 *
 * @param {Reading} reading
 */
export function prometheus({ counts, residentBytes }) {
  /** @type {string[]} */
  const lines = [];
  /** @type {(name: string, help: string, type: string) => void} */
  const head = (name, help, type) => lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  for (const [name, help, value] of NUMBERS) {
    head(name, help, name.endsWith('_total') ? 'counter' : 'gauge');
    lines.push(`${name} ${typeof value === 'number' ? counts[value] : value(counts)}`);
  }
  for (const [name, help, label, family] of FAMILIES) {
    head(name, help, 'counter');
    lines.push(...labelled(counts, family).map(([of, count]) => `${name}{${label}="${of}"} ${count}`));
  }
  head('service_messages_send_dropped_total', 'Messages not sent', 'counter');
  head('service_flush_lateness_seconds', 'How late flush ticks ran', 'histogram');
  lines.push(...histogram('service_flush_lateness_seconds', counts));
  if (residentBytes !== undefined) {
    head('service_process_resident_bytes', 'Memory of the process', 'gauge');
    lines.push(`service_process_resident_bytes ${residentBytes}`);
  }
  return `${lines.join('\n')}\n`;
}

/** @type {(name: string, counts: Float64Array) => string[]} */
function histogram(name, counts) {
  let count = 0;
  const buckets = AT.lateness.map((at, bucket) => {
    count += counts[at] ?? 0;
    return `${name}_bucket{le="${LATENESS_BOUNDS[bucket] ?? '+Inf'}"} ${count}`;
  });
  return [...buckets, `${name}_sum ${counts[AT.latenessSeconds]}`, `${name}_count ${count}`];
}
