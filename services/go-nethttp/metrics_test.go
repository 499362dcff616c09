package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func get(t *testing.T, b *books, path string) (int, string) {
	t.Helper()
	response := httptest.NewRecorder()
	metricsPort(b).ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
	return response.Code, response.Body.String()
}

func TestMetrics_HaveAllNamesOfTheContract(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	b := newBooks()
	_, text := get(t, b, "/metrics")
	names := regexp.MustCompile("`(service_[a-z]+_[a-z_]+)").FindAllStringSubmatch(string(readme), -1)
	if len(names) < 20 {
		t.Fatalf("the contract lists %v", names)
	}
	for _, name := range names {
		if !strings.Contains(text, "# TYPE "+name[1]+" ") {
			t.Errorf("%s is missing", name[1])
		}
	}
}

func TestMetrics_HistogramCountsEachTickOnce(t *testing.T) {
	b := newBooks()
	for _, lateness := range []time.Duration{0, time.Millisecond, 1001 * time.Microsecond, time.Minute} {
		b.tick(true, false, lateness)
	}
	_, text := get(t, b, "/metrics")
	for _, line := range []string{
		`service_flush_lateness_seconds_bucket{le="0.0005"} 1`, `service_flush_lateness_seconds_bucket{le="0.001"} 2`,
		`service_flush_lateness_seconds_bucket{le="0.002"} 3`, `service_flush_lateness_seconds_bucket{le="+Inf"} 4`,
		`service_flush_lateness_seconds_count 4`, `service_flush_ticks_total{outcome="empty"} 4`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing in\n%s", line, text)
		}
	}
}

func TestStats_Balance(t *testing.T) {
	b := newBooks()
	b.update(func(c *counts) { c.received++; c.consumed++; c.accepted++; c.open++ })
	for range 5 {
		b.receiveFrame(false)
	}
	b.receiveFrame(true)
	b.startRequest(3)
	b.completeRequest(3, &failure{kind: kindTimeout})
	b.startRequest(1)
	b.closeConnection(reasonExpectedAudio, 1, 1)
	_, text := get(t, b, "/stats")
	var stats struct {
		Messages struct {
			Received, Consumed, Delivered, Queued uint64
			Dropped                               map[string]uint64
		}
		Inference struct {
			Requests, Abandoned uint64
			Failed              map[string]uint64
		}
	}
	if err := json.Unmarshal([]byte(text), &stats); err != nil {
		t.Fatal(err)
	}
	m := stats.Messages
	sum := m.Consumed + m.Delivered + m.Queued
	for _, count := range m.Dropped {
		sum += count
	}
	if m.Received != 8 || sum != m.Received || m.Queued != 0 || stats.Inference.Abandoned != 1 || stats.Inference.Failed["timeout"] != 1 {
		t.Errorf("%s", text)
	}
}

func TestReadyz_Returns503WhenTheGatewayStops(t *testing.T) {
	b := newBooks()
	if code, _ := get(t, b, "/readyz"); code != 200 {
		t.Errorf("%d", code)
	}
	b.accepting.Store(false)
	if code, _ := get(t, b, "/readyz"); code != 503 {
		t.Errorf("%d", code)
	}
	if code, _ := get(t, b, "/stats/connections"); code != 404 {
		t.Errorf("%d", code)
	}
}
