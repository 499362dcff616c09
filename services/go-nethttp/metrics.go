package main

// The books (counters of all sessions), and the metrics port that serves them.
//
// The counters are one struct behind one lock, so that every snapshot is consistent and satisfies the contract's equations.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// latenessBounds are the upper bounds of the histogram of flush lateness, in seconds.
var latenessBounds = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}

// counts holds the counters that the lock protects. Audio is counted in frames.
type counts struct {
	received, consumed, delivered, sent uint64
	// waiting and inFlight are the frames that wait and those of requests in flight.
	waiting, inFlight uint64
	dropped           map[string]uint64

	accepted, open   uint64
	closed, rejected map[string]uint64

	requests, answered, abandoned, requestsInFlight uint64
	inFlightPerConnectionMax                        uint64
	failed                                          map[string]uint64

	flushed, skipped, empty uint64
	// lateness counts ticks per bucket, not cumulatively: one bucket per bound, and one beyond the last.
	lateness    [len(latenessBounds) + 1]uint64
	latenessSum time.Duration
}

// books holds all counters of the gateway.
type books struct {
	mu     sync.Mutex
	counts counts
	// bytesReceived and bytesSent are not part of the equations, so they need no lock.
	bytesReceived, bytesSent atomic.Uint64
	accepting                atomic.Bool
	startedAt                time.Time
}

func newBooks() *books {
	b := &books{startedAt: time.Now(), counts: counts{
		dropped: map[string]uint64{}, closed: map[string]uint64{}, rejected: map[string]uint64{}, failed: map[string]uint64{},
	}}
	for _, kind := range requestKinds {
		// All kinds appear from the start, so that rate() has a first sample of each.
		b.counts.failed[string(kind)] = 0
	}
	b.accepting.Store(true)
	return b
}

// update changes the counters under the lock.
func (b *books) update(change func(*counts)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.counts)
}

// receiveFrame counts a received frame, and the oldest waiting one as dropped if the new one exceeded the limit.
func (b *books) receiveFrame(dropsOldest bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.received++
	if dropsOldest {
		b.counts.dropped[string(kindOverflow)]++
	} else {
		b.counts.waiting++
	}
}

// tick counts a flush tick by its outcome.
func (b *books) tick(isIdle, hasAudio bool, lateness time.Duration) {
	bucket, _ := slices.BinarySearch(latenessBounds[:], lateness.Seconds())
	b.update(func(c *counts) {
		c.lateness[bucket]++
		c.latenessSum += lateness
		switch {
		case !isIdle:
			c.skipped++
		case hasAudio:
			c.flushed++
		default:
			c.empty++
		}
	})
}

// startRequest counts a request that begins. A session can have only one.
func (b *books) startRequest(frames uint64) {
	b.update(func(c *counts) {
		c.waiting -= frames
		c.inFlight += frames
		c.requests++
		c.requestsInFlight++
		c.inFlightPerConnectionMax = 1
	})
}

// completeRequest counts a request that ended, with success if f is nil.
func (b *books) completeRequest(frames uint64, f *failure) {
	b.update(func(c *counts) {
		c.inFlight -= frames
		c.requestsInFlight--
		if f == nil {
			c.answered++
			c.delivered += frames
		} else {
			c.failed[string(f.kind)]++
			c.dropped[string(f.kind)] += frames
		}
	})
}

// closeConnection counts a connection that ended, with the frames that waited and those of an abandoned request.
func (b *books) closeConnection(reason closeReason, waiting, abandoned uint64) {
	b.update(func(c *counts) {
		c.open--
		c.closed[reason.label]++
		if reason.refused {
			c.received++
			c.dropped["protocol"]++
		}
		c.waiting -= waiting
		if abandoned > 0 {
			c.inFlight -= abandoned
			c.requestsInFlight--
			c.abandoned++
		}
		if waiting+abandoned > 0 {
			c.dropped["closed"] += waiting + abandoned
		}
	})
}

// snapshot returns a consistent copy of the counters.
func (b *books) snapshot() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts
	for _, m := range []*map[string]uint64{&c.dropped, &c.closed, &c.rejected, &c.failed} {
		*m = maps.Clone(*m)
	}
	return c
}

func (c *counts) bufferedBytes() uint64 { return (c.waiting + c.inFlight) * frameBytes }

// metricsPort returns the handler of /healthz, /readyz, /stats and /metrics.
func metricsPort(b *books) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !b.accepting.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// An error means that the reader has disconnected.
		_ = json.NewEncoder(w).Encode(b.stats())
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(b.exposition())
	})
	return mux
}

// stats returns the body of /stats.
func (b *books) stats() map[string]any {
	c := b.snapshot()
	return map[string]any{
		"service":        name,
		"version":        version,
		"uptime_seconds": time.Since(b.startedAt).Seconds(),
		"connections": map[string]any{
			"accepted": c.accepted, "open": c.open, "closed": c.closed, "rejected": c.rejected,
		},
		"messages": map[string]any{
			"received": c.received, "consumed": c.consumed, "delivered": c.delivered, "dropped": c.dropped,
			"queued": c.waiting + c.inFlight, "malformed": 0, "sent": c.sent, "send_dropped": map[string]uint64{},
		},
		"bytes": map[string]any{"received": b.bytesReceived.Load(), "sent": b.bytesSent.Load()},
		"inference": map[string]any{
			"requests": c.requests, "answered": c.answered, "failed": c.failed, "abandoned": c.abandoned,
			"in_flight": c.requestsInFlight, "ticks_skipped": c.skipped, "buffered_bytes": c.bufferedBytes(),
		},
	}
}

// exposition returns the body of /metrics, in Prometheus' text format.
func (b *books) exposition() []byte {
	c := b.snapshot()
	var t exposition
	t.counter("service_messages_received_total", "Complete data messages taken from sockets", c.received)
	t.counter("service_messages_consumed_total", "Messages that the service answered itself", c.consumed)
	t.counter("service_messages_delivered_total", "Frames answered by a partial", c.delivered)
	t.counters("service_messages_dropped_total", "Messages not handed over", "reason", c.dropped)
	t.gauge("service_messages_queued", "Frames that wait or are in flight", c.waiting+c.inFlight)
	t.counter("service_messages_malformed_total", "Text passed on that was no JSON object", 0)
	t.counter("service_messages_sent_total", "Data messages handed to sockets", c.sent)
	t.counters("service_messages_send_dropped_total", "Messages not sent", "reason", nil)
	t.counter("service_connections_accepted_total", "Connections upgraded and registered", c.accepted)
	t.gauge("service_connections_open", "Connections open now", c.open)
	t.counters("service_connections_closed_total", "Connections that ended", "reason", c.closed)
	t.counters("service_connections_rejected_total", "Connections refused", "reason", c.rejected)
	t.counter("service_bytes_received_total", "WebSocket bytes read from sockets", b.bytesReceived.Load())
	t.counter("service_bytes_sent_total", "WebSocket bytes written to sockets", b.bytesSent.Load())
	t.counter("service_inference_requests_total", "Requests begun", c.requests)
	t.counter("service_inference_answered_total", "Requests whose answer became a partial", c.answered)
	t.counters("service_inference_failed_total", "Requests whose frames got an error", "kind", c.failed)
	t.counter("service_inference_abandoned_total", "Requests whose connection ended first", c.abandoned)
	t.gauge("service_inference_in_flight", "Requests in flight now", c.requestsInFlight)
	t.gauge("service_inference_in_flight_per_connection_max", "The most requests that were ever in flight for one connection", c.inFlightPerConnectionMax)
	t.gauge("service_buffered_bytes", "Audio held, waiting or in flight", c.bufferedBytes())
	t.counters("service_flush_ticks_total", "Flush ticks by what they found", "outcome",
		map[string]uint64{"flushed": c.flushed, "skipped": c.skipped, "empty": c.empty})
	t.histogram("service_flush_lateness_seconds", "How late flush ticks ran", latenessBounds[:], c.lateness[:], c.latenessSum.Seconds())
	if resident, err := residentBytes(); err == nil {
		t.gauge("service_process_resident_bytes", "Memory of the process", resident)
	}
	return t.Bytes()
}

// residentBytes returns the resident memory of this process in bytes.
func residentBytes() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("unexpected /proc/self/statm: %q", text)
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}

// exposition builds Prometheus text one metric at a time. It doesn't escape label values, since none needs it.
type exposition struct{ bytes.Buffer }

func (t *exposition) head(name, help, kind string) {
	fmt.Fprintf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (t *exposition) counter(name, help string, value uint64) {
	t.head(name, help, "counter")
	fmt.Fprintf(t, "%s %d\n", name, value)
}

func (t *exposition) gauge(name, help string, value uint64) {
	t.head(name, help, "gauge")
	fmt.Fprintf(t, "%s %d\n", name, value)
}

func (t *exposition) counters(name, help, label string, values map[string]uint64) {
	t.head(name, help, "counter")
	for _, value := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(t, "%s{%s=%q} %d\n", name, label, value, values[value])
	}
}

func (t *exposition) histogram(name, help string, bounds []float64, buckets []uint64, sum float64) {
	t.head(name, help, "histogram")
	count := uint64(0)
	for n, bound := range bounds {
		count += buckets[n]
		fmt.Fprintf(t, "%s_bucket{le=\"%g\"} %d\n", name, bound, count)
	}
	count += buckets[len(bounds)]
	fmt.Fprintf(t, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", name, count, name, sum, name, count)
}
