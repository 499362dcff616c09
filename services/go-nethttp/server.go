package main

// The port of the WebSocket: it takes connections, upgrades them, and ends their sessions when the gateway stops.

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// maxHeaderBytes and headerTimeout bound a request before its upgrade.
	maxHeaderBytes = 16 << 10
	headerTimeout  = 10 * time.Second
	// drainTimeout is how long a session may take for its last batch when the gateway stops; a farewell may follow.
	drainTimeout = 2900 * time.Millisecond
	// frameTime is the time of one frame of audio.
	frameTime = 20 * time.Millisecond
)

// gateway is what all sessions have in common.
type gateway struct {
	config    config
	books     *books
	inference *inference
	pool      *audioPool

	mu       sync.Mutex
	sessions map[*session]struct{}
	// places are taken from an upgrade's begin until its socket is closed. taken waits for them, once no more are given.
	places   uint64
	taken    sync.WaitGroup
	isClosed bool
}

func newGateway(c config, b *books) *gateway {
	// A frame more than come in an interval, since ticks may be late; no more than may wait.
	frames := min(uint64((c.flushInterval+frameTime-1)/frameTime)+1, c.maxBufferedFrames+1)
	pool := newAudioPool(frames)
	return &gateway{
		config: c, books: b, pool: pool, inference: newInference(c, pool), sessions: map[*session]struct{}{},
	}
}

// schedule returns the ticks of a session that starts now.
func (g *gateway) schedule(now time.Time) schedule {
	offset := time.Duration(rand.Int64N(int64(g.config.flushPhaseJitter) + 1))
	return schedule{due: now.Add(offset + g.config.flushInterval), interval: g.config.flushInterval}
}

// serve takes connections until ctx ends, and then ends all sessions.
func (g *gateway) serve(ctx context.Context, tcp net.Listener) error {
	server := &http.Server{
		Handler:           g.routes(),
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withSocket,
		ErrorLog:          log.Default(),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener{Listener: tcp, books: g.books}) }()
	select {
	case err := <-failed:
		return fmt.Errorf("failed to take connections: %w", err)
	case <-ctx.Done():
	}
	return g.stop(server)
}

// stop ends the sessions, and waits for their sockets.
func (g *gateway) stop(server *http.Server) error {
	deadline := time.Now().Add(drainTimeout)
	g.books.accepting.Store(false)
	g.mu.Lock()
	g.isClosed = true
	g.mu.Unlock()
	for _, s := range g.list() {
		s.drain()
	}
	patience := time.AfterFunc(time.Until(deadline), func() {
		for _, s := range g.list() {
			s.stopAs(endShutdown)
		}
	})
	defer patience.Stop()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	// It doesn't know of upgraded connections. Those that are not upgraded by its deadline end with the process.
	_ = server.Shutdown(ctx)
	closed := make(chan struct{})
	go func() {
		g.taken.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Until(deadline) + farewell):
	}
	return nil
}

// list returns the sessions that are open.
func (g *gateway) list() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	sessions := make([]*session, 0, len(g.sessions))
	for s := range g.sessions {
		sessions = append(sessions, s)
	}
	return sessions
}

// routes are the paths of the port. The method is checked by hand: the mux would allow HEAD as well.
func (g *gateway) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ws/stt", onlyGet(g.upgrade))
	mux.HandleFunc("/health", onlyGet(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"ok":true,"runtime":%q}`, name)
	}))
	return mux
}

func onlyGet(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET is allowed here", http.StatusMethodNotAllowed)
			return
		}
		handler(w, r)
	}
}

// upgrade makes a session of a request, and serves it in the request's goroutine.
func (g *gateway) upgrade(w http.ResponseWriter, r *http.Request) {
	if reason := g.takePlace(); reason != "" {
		g.reject(reason)
		http.Error(w, reason, http.StatusServiceUnavailable)
		return
	}
	socket, _ := r.Context().Value(socketKey{}).(*socket)
	socket.isWebSocket.Store(true)
	s := &session{gateway: g, socket: socket, lane: g.inference.lane(), backlog: backlog{pool: g.pool}}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		// Tokens would be checked in front of a gateway; pages of any origin may speak to it.
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     s.hasRoom,
	})
	if err != nil {
		g.leavePlace()
		g.reject("handshake")
		return
	}
	socket.closed = g.leavePlace
	conn.SetReadLimit(maxMessageBytes)
	s.conn = conn
	g.register(s)
	defer g.forget(s)
	s.run()
}

// takePlace reserves a place for a connection. It returns why there is none.
func (g *gateway) takePlace() (refused string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return "draining"
	}
	if most := g.config.maxConnections; most > 0 && g.places >= most {
		return "full"
	}
	g.places++
	g.taken.Add(1)
	return ""
}

func (g *gateway) leavePlace() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.places--
	g.taken.Done()
}

func (g *gateway) reject(reason string) {
	g.books.enter(func(c *counts) { c.rejected[reason]++ })
}

// register enters a session that was upgraded. One that comes while the gateway stops is drained at once.
func (g *gateway) register(s *session) {
	g.books.enter(func(c *counts) {
		c.accepted++
		c.open++
	})
	g.mu.Lock()
	g.sessions[s] = struct{}{}
	isClosed := g.isClosed
	g.mu.Unlock()
	if isClosed {
		s.drain()
	}
}

func (g *gateway) forget(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}
