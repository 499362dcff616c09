package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// exceptions lists golden messages that the library handles differently, with the reason.
var exceptions = map[string]string{
	"length of 16 bits that fits in 7":  "the library takes lengths that are not minimal",
	"length of 64 bits that fits in 16": "the library takes lengths that are not minimal",
	"one byte beyond 64 KiB":            "the library refuses a long message when 64 KiB of it are read, not by its header",
	"2^62 bytes":                        "the library refuses a long message when 64 KiB of it are read, not by its header",
	"fragments beyond 64 KiB":           "the library refuses a long message when 64 KiB of it are read, not by its header",
	"too big before the start":          "the library refuses a long message when 64 KiB of it are read, not by its header",
}

func TestSession_RepliesToGoldenMessages(t *testing.T) {
	gateway := startGateway(t, startInference(t, respondValid))
	t.Run("messages", func(t *testing.T) {
		for _, entry := range readGolden(t).Client {
			t.Run(entry.Name, func(t *testing.T) {
				if reason, isException := exceptions[entry.Name]; isException {
					t.Skip(reason)
				}
				t.Parallel()
				c := gateway.connect(t)
				if entry.State == "started" {
					c.start()
				}
				bytes, err := hex.DecodeString(entry.Binary + entry.Wire)
				switch {
				case err != nil:
					t.Fatal(err)
				case entry.Text != nil:
					c.send(1, []byte(*entry.Text))
				case entry.Zeros != nil:
					c.send(2, make([]byte, *entry.Zeros))
				case entry.Binary != "":
					c.send(2, bytes)
				default:
					c.write(bytes)
				}
				c.expect(entry.Means, entry.Hex, entry.Code, entry.Reason)
			})
		}
	})
}

// expect checks that the gateway reacts as the golden message says.
func (c *client) expect(means, payload string, code int, reason string) {
	c.t.Helper()
	switch means {
	case "start":
		// A pong comes first only if the message has a ping between its fragments.
		c.frames(1)
		if opcode, _ := c.next(); opcode == 10 {
			c.text(`"partial"`, `"newest_frame_seq":1,`)
		}
	case "frame":
		c.text(`"partial"`, `"newest_frame_seq":1,"frames":1,`)
	case "pong":
		if opcode, pong := c.next(); opcode != 10 || hex.EncodeToString(pong) != payload {
			c.t.Fatalf("opcode %d, %x", opcode, pong)
		}
	case "nothing":
		c.send(8, []byte{3, 232})
		c.closed(1000, "")
	case "close":
		c.closed(code, reason)
	default:
		c.t.Fatalf("unknown meaning %q", means)
	}
}

func TestSession_ReportsTheKindOfFailure(t *testing.T) {
	for _, entry := range readGolden(t).Inference {
		if entry.Means != "error" || entry.Frames != 1 {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel()
			gateway := startGateway(t, startInference(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(entry.Status)
				_, _ = io.WriteString(w, entry.Body)
			}))
			c := gateway.connect(t)
			c.start()
			c.frames(1)
			c.text(`"stage":"`+entry.Stage+`"`, `"kind":"`+string(entry.Kind)+`"`)
		})
	}
}

func TestSession_ReportsAnUnreachableInference(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp.Close()
	c := startGateway(t, "http://"+tcp.Addr().String()).connect(t)
	c.start()
	c.frames(1)
	c.text(`"kind":"connection_reset"`, `"inference_status":null,"retryable":true`)
}

func TestSession_ReportsAnInferenceWithoutHTTP2(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			// If the peer wrote before the request, net/http would report only that the connection is closed.
			_, _ = io.ReadFull(conn, make([]byte, frameBytes))
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	c := startGateway(t, "http://"+tcp.Addr().String()).connect(t)
	c.start()
	c.frames(1)
	c.text(`"kind":"parse_error"`, `"inference_status":null,"retryable":false`)
}

func TestSession_ReportsAnInferenceTimeout(t *testing.T) {
	gateway := startGateway(t, startInference(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "--inference-timeout-ms", "30")
	c := gateway.connect(t)
	c.start()
	c.frames(2)
	c.text(`"kind":"timeout"`, `"message":"no answer within 30 ms"`, `"newest_frame_seq":2`)
}

func TestSession_ReportsDroppedFramesBeforeItsNextBatch(t *testing.T) {
	open := make(chan struct{})
	gateway := startGateway(t, startInference(t, func(w http.ResponseWriter, r *http.Request) {
		<-open
		respondValid(w, r)
	}), "--max-buffered-frames", "3")
	c := gateway.connect(t)
	c.start()
	c.frames(1)
	gateway.until(t, "in flight", func(c counts) bool { return c.inFlight == 1 })
	c.frames(5)
	gateway.until(t, "dropped", func(c counts) bool { return c.dropped["overflow"] == 2 && c.waiting == 3 })
	close(open)
	c.text(`"partial"`, `"oldest_frame_seq":1,"newest_frame_seq":1,`)
	c.text(`"kind":"overflow"`, `"oldest_frame_seq":2,"newest_frame_seq":3,`, `"inflight_gateway_batches":0,"gateway_buffer_frames":3,`)
	c.text(`"partial"`, `"oldest_frame_seq":4,"newest_frame_seq":6,`)
}

func TestSession_AbandonsItsRequestWhenItsClientLeaves(t *testing.T) {
	gateway := startGateway(t, startInference(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	c := gateway.connect(t)
	c.start()
	c.frames(1)
	gateway.until(t, "in flight", func(c counts) bool { return c.inFlight == 1 })
	c.Close()
	gateway.until(t, "abandoned", func(c counts) bool {
		return c.open == 0 && c.abandoned == 1 && c.dropped["closed"] == 1 && c.requestsInFlight == 0
	})
}

func TestSession_ClosesOnAClientThatDoesNotRead(t *testing.T) {
	long := strings.Repeat("a", 60<<10)
	gateway := startGateway(t, startInference(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"rms":1,"zero_crossings":0,"checksum":0,"samples":%d,"transcript":%q,"audio_bytes":%d}`, 2*len(body), long, len(body))
	}), "--flush-interval-ms", "10")
	c := gateway.connect(t)
	c.start()
	gateway.until(t, "closed", func(counts counts) bool {
		if counts.closed["slow_consumer"] == 0 {
			// Fails once the gateway has closed.
			_, _ = c.Write(append([]byte{0x82, 0xfe, 2, 128, 0, 0, 0, 0}, make([]byte, frameBytes)...))
		}
		return counts.closed["slow_consumer"] == 1 && counts.open == 0
	})
}

func TestGateway_AnswersWaitingAudioWhenItStops(t *testing.T) {
	gateway := startGateway(t, startInference(t, respondValid), "--flush-interval-ms", "60000")
	holding, idle, silent := gateway.connect(t), gateway.connect(t), gateway.connect(t)
	holding.start()
	idle.start()
	holding.frames(3)
	gateway.until(t, "received", func(c counts) bool { return c.consumed == 2 && c.waiting == 3 })
	gateway.stop()
	holding.text(`"partial"`, `"newest_frame_seq":3,`)
	for _, c := range []*client{holding, idle, silent} {
		c.closed(1001, "")
		c.Close()
	}
	gateway.until(t, "closed", func(c counts) bool { return c.closed["shutdown"] == 3 && c.open == 0 })
}

func TestGateway_RefusesConnectionsBeyondItsLimit(t *testing.T) {
	gateway := startGateway(t, "http://127.0.0.1:1", "--max-connections", "1")
	gateway.connect(t)
	response, err := http.Get("http://" + gateway.address + "/ws/stt")
	if err != nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v, %v", response, err)
	}
	gateway.until(t, "refused", func(c counts) bool { return c.rejected["full"] == 1 })
}
