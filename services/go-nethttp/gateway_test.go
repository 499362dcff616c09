package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testTimeout limits each wait of a test.
const testTimeout = 10 * time.Second

// testGateway is a gateway that runs in the test process.
type testGateway struct {
	*gateway
	address string
	// stop has the effect of SIGTERM; ended receives the result of serve.
	stop  context.CancelFunc
	ended chan error
}

// startGateway starts a gateway in front of the inference at this URL.
func startGateway(t *testing.T, inference string, flags ...string) *testGateway {
	t.Helper()
	c, err := configOf(nil, append([]string{"--inference-url", inference, "--flush-interval-ms", "50"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &testGateway{gateway: newGateway(c, newBooks()), address: tcp.Addr().String(), stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- r.serve(ctx, tcp) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-r.ended:
		case <-time.After(testTimeout):
			t.Error("the gateway doesn't end")
		}
	})
	return r
}

// until polls the counters until the condition holds.
func (r *testGateway) until(t *testing.T, state string, condition func(counts) bool) counts {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if c := r.books.snapshot(); condition(c) {
			return c
		}
	}
	t.Fatalf("never %s: %+v", state, r.books.snapshot())
	return counts{}
}

// startInference starts an h2c server that handles requests with handler, and returns its URL.
func startInference(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(tcp) //nolint:errcheck // It ends with the test.
	t.Cleanup(func() { server.Close() })
	return "http://" + tcp.Addr().String()
}

// respondValid sends a valid response with the transcript "now".
func respondValid(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var passes int
	fmt.Sscan(r.Header.Get("X-Cpu-Passes"), &passes)
	fmt.Fprintf(w, `{"rms":1.5,"zero_crossings":7,"checksum":1,"samples":%d,"transcript":"now","audio_bytes":%d}`, passes*len(body)/2, len(body))
}

// client writes WebSocket frames byte by byte, so that it can send invalid ones.
type client struct {
	t *testing.T
	net.Conn
	reader *bufio.Reader
}

func (r *testGateway) connect(t *testing.T) *client {
	t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &client{t: t, Conn: conn, reader: bufio.NewReader(conn)}
	_ = conn.SetReadDeadline(time.Now().Add(testTimeout))
	fmt.Fprintf(conn, "GET /ws/stt HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", r.address)
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", response, err)
	}
	return c
}

// send writes a complete masked frame. The masking key is zero, which leaves the payload unchanged.
func (c *client) send(opcode byte, payload []byte) {
	c.t.Helper()
	head := []byte{0x80 | opcode}
	switch length := len(payload); {
	case length <= 125:
		head = append(head, 0x80|byte(length))
	case length <= 0xffff:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(length))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(length))
	}
	c.write(append(append(head, 0, 0, 0, 0), payload...))
}

func (c *client) write(bytes []byte) {
	c.t.Helper()
	if _, err := c.Write(bytes); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) start() {
	c.t.Helper()
	c.send(1, []byte(`{"type":"start"}`))
}

func (c *client) frames(count int) {
	c.t.Helper()
	for range count {
		c.send(2, make([]byte, frameBytes))
	}
}

// next reads a frame, which must be unfragmented and unmasked.
func (c *client) next() (opcode byte, payload []byte) {
	c.t.Helper()
	var head [2]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		c.t.Fatalf("no frame: %v", err)
	}
	length := int(head[1])
	if length == 126 {
		var long [2]byte
		if _, err := io.ReadFull(c.reader, long[:]); err != nil {
			c.t.Fatal(err)
		}
		length = int(binary.BigEndian.Uint16(long[:]))
	}
	payload = make([]byte, length)
	if _, err := io.ReadFull(c.reader, payload); err != nil {
		c.t.Fatal(err)
	}
	return head[0] & 15, payload
}

// text reads a frame that must be a text frame with these parts.
func (c *client) text(parts ...string) {
	c.t.Helper()
	opcode, payload := c.next()
	for _, part := range parts {
		if opcode != 1 || !strings.Contains(string(payload), part) {
			c.t.Fatalf("opcode %d, %q instead of a text with %s", opcode, payload, part)
		}
	}
}

// closed reads a frame that must be a Close frame with this code and reason, and then the end of the stream.
func (c *client) closed(code int, reason string) {
	c.t.Helper()
	opcode, payload := c.next()
	if opcode != 8 || len(payload) < 2 || int(binary.BigEndian.Uint16(payload)) != code || !strings.HasPrefix(string(payload[2:]), reason) {
		c.t.Fatalf("opcode %d, %q instead of close %d %s", opcode, payload, code, reason)
	}
	if _, err := c.reader.ReadByte(); err != io.EOF {
		c.t.Fatalf("%v instead of the end", err)
	}
}
