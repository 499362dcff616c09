package main

// The client port: accepts connections, upgrades them, and ends the sessions when the gateway stops.

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
	// maxHeaderBytes and headerTimeout limit the head of a request.
	maxHeaderBytes = 16 << 10
	headerTimeout  = 10 * time.Second
	// drainTimeout limits the time of a session's last batch when the gateway stops. The close handshake may follow.
	drainTimeout = 2900 * time.Millisecond
	// frameTime is the duration of one audio frame.
	frameTime = 20 * time.Millisecond
)

// gateway is the state that all sessions share.
type gateway struct {
	config    config
	books     *books
	inference *inference
	pool      *audioPool

	mu       sync.Mutex
	sessions map[*session]struct{}
	// connections counts connections from the start of the upgrade until the socket is closed. allClosed waits for them after
	// isStopping is set, when no more are added.
	connections uint64
	allClosed   sync.WaitGroup
	isStopping  bool
}

func newGateway(c config, b *books) *gateway {
	// One frame more than an interval has, since ticks may be late; at most as many as may wait, plus one.
	frames := min(uint64((c.flushInterval+frameTime-1)/frameTime)+1, c.maxBufferedFrames+1)
	pool := newAudioPool(frames)
	return &gateway{
		config: c, books: b, pool: pool, inference: newInference(c, pool), sessions: map[*session]struct{}{},
	}
}

// schedule returns the schedule of a session that starts now, with a random offset of up to flushPhaseJitter.
func (g *gateway) schedule(now time.Time) schedule {
	offset := time.Duration(rand.Int64N(int64(g.config.flushPhaseJitter) + 1))
	return schedule{due: now.Add(offset + g.config.flushInterval), interval: g.config.flushInterval}
}

// serve accepts connections until ctx is done, and then ends all sessions.
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

// stop drains the sessions until drainTimeout and waits for their sockets to close.
func (g *gateway) stop(server *http.Server) error {
	deadline := time.Now().Add(drainTimeout)
	g.books.accepting.Store(false)
	g.mu.Lock()
	g.isStopping = true
	g.mu.Unlock()
	for _, s := range g.openSessions() {
		s.drain()
	}
	timer := time.AfterFunc(time.Until(deadline), func() {
		for _, s := range g.openSessions() {
			s.end(reasonShutdown)
		}
	})
	defer timer.Stop()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	// Shutdown ignores upgraded connections. Connections that are not upgraded by the deadline end with the process.
	_ = server.Shutdown(ctx)
	closed := make(chan struct{})
	go func() {
		g.allClosed.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Until(deadline) + lingerTimeout):
	}
	return nil
}

// openSessions returns a copy of the set of open sessions.
func (g *gateway) openSessions() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	sessions := make([]*session, 0, len(g.sessions))
	for s := range g.sessions {
		sessions = append(sessions, s)
	}
	return sessions
}

// routes returns the handler of the port. onlyGet checks the method, because the pattern "GET /path" would allow HEAD as
// well.
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

// upgrade upgrades a request and serves its session in the request's goroutine.
func (g *gateway) upgrade(w http.ResponseWriter, r *http.Request) {
	if reason := g.admit(); reason != "" {
		g.reject(reason)
		http.Error(w, reason, http.StatusServiceUnavailable)
		return
	}
	socket, _ := r.Context().Value(socketKey{}).(*socket)
	socket.isWebSocket.Store(true)
	s := &session{gateway: g, socket: socket, connection: g.inference.assignConnection(), backlog: backlog{pool: g.pool}}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		// Authentication would happen in front of a gateway, so pages of any origin may connect.
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     s.hasRoom,
	})
	if err != nil {
		g.release()
		g.reject("handshake")
		return
	}
	socket.onClose = g.release
	conn.SetReadLimit(maxMessageBytes)
	s.conn = conn
	g.register(s)
	defer g.unregister(s)
	s.run()
}

// admit counts a connection. If none is accepted, it returns the reason ("draining" or "full"), else "".
func (g *gateway) admit() (refusal string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isStopping {
		return "draining"
	}
	if limit := g.config.maxConnections; limit > 0 && g.connections >= limit {
		return "full"
	}
	g.connections++
	g.allClosed.Add(1)
	return ""
}

// release counts the end of an admitted connection.
func (g *gateway) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.connections--
	g.allClosed.Done()
}

func (g *gateway) reject(reason string) {
	g.books.update(func(c *counts) { c.rejected[reason]++ })
}

// register adds an upgraded session. If the gateway is already stopping, the session is drained at once.
func (g *gateway) register(s *session) {
	g.books.update(func(c *counts) {
		c.accepted++
		c.open++
	})
	g.mu.Lock()
	g.sessions[s] = struct{}{}
	isStopping := g.isStopping
	g.mu.Unlock()
	if isStopping {
		s.drain()
	}
}

func (g *gateway) unregister(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}
