package main

// Requests to the inference, over HTTP/2 with prior knowledge (h2c) and a few connections.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connectTimeout limits the time to open a connection to the inference.
	connectTimeout = time.Second
	// pingAfter is the time without inbound frames after which a connection is checked with an HTTP/2 PING; pingTimeout
	// limits the wait for the reply.
	pingAfter   = 15 * time.Second
	pingTimeout = 2 * time.Second
	// maxResponseBytes is the largest response body that is read. A regular one has a few hundred bytes.
	maxResponseBytes = 64 << 10
)

// inference sends the requests of all sessions.
type inference struct {
	connections []connection
	// sessions counts the sessions so far; they take the connections in turn.
	sessions  atomic.Uint64
	template  *http.Request
	timeout   time.Duration
	cpuPasses uint32
	pool      *audioPool
}

func newInference(c config, pool *audioPool) *inference {
	i := &inference{timeout: c.inferenceTimeout, cpuPasses: c.echo.cpuPasses, pool: pool}
	for range c.inferenceHTTPClients {
		i.connections = append(i.connections, newConnection())
	}
	i.template = &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{Scheme: "http", Host: c.inferenceURL.Host, Path: "/infer"},
		Header: http.Header{
			"Content-Type": {"application/octet-stream"},
			"X-Cpu-Passes": {strconv.FormatUint(uint64(c.echo.cpuPasses), 10)},
			"User-Agent":   {"go-nethttp"},
		},
	}
	return i
}

// connection is an HTTP/2 client that keeps one connection to the inference and replaces it when it breaks.
type connection struct{ *http.Transport }

func newConnection() connection {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return connection{&http.Transport{
		Protocols:          protocols,
		DialContext:        (&net.Dialer{Timeout: connectTimeout}).DialContext,
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}}
}

// assignConnection returns the connection of the next session.
func (i *inference) assignConnection() connection {
	return i.connections[i.sessions.Add(1)%uint64(len(i.connections))]
}

// recognise sends the batch of s as one request and parses the response. ctx is done at the request's deadline or when its
// session ends.
//
// It uses RoundTrip instead of Client.Do, because there are no cookies and a redirect is an error.
func (i *inference) recognise(ctx context.Context, c connection, s span, b batch) (recognition, *failure) {
	request := i.template.WithContext(ctx)
	body := &requestBody{remaining: b.bytes}
	request.Body, request.ContentLength = body, int64(len(b.bytes))
	response, err := c.RoundTrip(request)
	if err != nil {
		return recognition{}, i.failureOf(err)
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return recognition{}, statusFailure(response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	if err != nil {
		return recognition{}, i.failureOf(err)
	}
	if body.isClosed() {
		i.pool.put(b.audio)
	}
	parseFailure := func(message string) *failure {
		return &failure{kind: kindParseError, status: response.StatusCode, message: message}
	}
	if len(text) > maxResponseBytes {
		return recognition{}, parseFailure(fmt.Sprintf("the inference's answer is longer than %d bytes", maxResponseBytes))
	}
	result, err := parseRecognition(text, s, i.cpuPasses)
	if err != nil {
		return recognition{}, parseFailure(err.Error())
	}
	return result, nil
}

func statusFailure(status int) *failure {
	f := &failure{kind: kindHTTP5xx, status: status, message: fmt.Sprintf("the inference answered %d", status)}
	if status == http.StatusTooManyRequests {
		f.kind = kindHTTP429
	}
	return f
}

// failureOf maps an error of the transport to the failure that the client is sent.
func (i *inference) failureOf(err error) *failure {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{kind: kindTimeout, message: fmt.Sprintf("no answer within %d ms", i.timeout.Milliseconds())}
	case isHTTP2Violation(err):
		return &failure{kind: kindParseError, message: "the inference doesn't speak HTTP/2: " + err.Error()}
	default:
		return &failure{kind: kindConnectionReset, message: "the connection to the inference failed: " + err.Error()}
	}
}

// isHTTP2Violation reports whether the peer doesn't speak HTTP/2. It compares texts, because net/http exports no error
// types for that.
func isHTTP2Violation(err error) bool {
	text := err.Error()
	return strings.Contains(text, "http2: frame too large") || strings.Contains(text, "looked like an HTTP/1.1 header") ||
		strings.Contains(text, "connection error: ")
}

// requestBody is the body of a request. A transport may read it after RoundTrip has returned, but not after Close.
type requestBody struct {
	mu        sync.Mutex
	remaining []byte
	closed    bool
}

func (u *requestBody) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, u.remaining)
	u.remaining = u.remaining[n:]
	if len(u.remaining) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (u *requestBody) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	return nil
}

// isClosed reports whether the transport is done with the body, so that its buffer can be reused.
func (u *requestBody) isClosed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}
