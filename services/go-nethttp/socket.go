package main

// The TCP connection under a WebSocket, as a net.Conn for the library.
//
// Until a session starts, Go's poller wakes its reader like any other. From then on the socket is out of the poller and its
// reader looks at it by the clock: a wake-up for each of 50 frames per second costs more than all that is done with them.
// Writes never block, and a close lingers so that no reset overtakes the close frame.

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxOutboxBytes is how much may wait for a client that doesn't read, and patience how long without progress.
	maxOutboxBytes = 64 << 10
	patience       = 10 * time.Second
	// farewell is how long a close frame may take to reach the client, and how long the client may take to hang up.
	farewell = time.Second
	// visitReads is how often one visit reads at most, 4 KiB each: a client that floods doesn't keep its own ticks waiting.
	visitReads = 64
)

// socket is a connection that was accepted.
type socket struct {
	net.Conn
	tcp   *net.TCPConn
	books *books

	// isWebSocket says that the upgrade is under way: what is read from now on belongs to the WebSocket.
	isWebSocket atomic.Bool
	// These belong to the reader. readAt is when bytes were last read, timer ends a pause.
	readAt time.Time
	timer  *time.Timer
	// reads counts those of a visit, and isDrained says that the last one left nothing.
	reads     int
	isDrained bool
	// visited is called when all that the client sent is read, or enough of it for once. It returns when to look again.
	visited func(now time.Time) time.Time
	// wake ends a pause early.
	wake chan struct{}
	// closed is called when the socket is closed at last. It is nil until the library writes.
	closed func()

	mu sync.Mutex
	// fd is the socket's descriptor once it is out of the poller, else -1. It is used under the lock only.
	fd int
	// isDeaf makes reads end. isGone refuses writes too: the socket is closing.
	isDeaf, isGone bool
	// outbox is what the kernel hasn't taken, and progress when it last took some.
	outbox   []byte
	progress time.Time
}

type socketKey struct{}

// withSocket is the http.Server's ConnContext.
func withSocket(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, conn)
}

// listener makes sockets of the connections that it accepts.
type listener struct {
	net.Listener
	books *books
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, _ := conn.(*net.TCPConn)
	return &socket{Conn: tcp, tcp: tcp, books: l.books, fd: -1, wake: make(chan struct{}, 1)}, nil
}

// leavePoller takes the socket out of Go's poller. visited is called by the reader from now on.
func (s *socket) leavePoller(visited func(now time.Time) time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGone {
		return net.ErrClosed
	}
	s.visited = visited
	s.timer = time.NewTimer(0)
	return s.detach()
}

// detach keeps a second descriptor of the socket and closes the first, which takes it out of the poller.
func (s *socket) detach() error {
	if s.fd >= 0 {
		return nil
	}
	raw, err := s.tcp.SyscallConn()
	if err != nil {
		return err
	}
	var fd uintptr
	var errno syscall.Errno
	err = raw.Control(func(first uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, first, syscall.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("fcntl", errno)
	}
	s.fd = int(fd)
	return s.tcp.Close()
}

// Read reads what the client sends; after hangUp it ends.
func (s *socket) Read(p []byte) (n int, err error) {
	if s.visited == nil {
		n, err = s.Conn.Read(p)
		if !s.isWebSocket.Load() {
			return n, err
		}
		s.readAt = time.Now()
		s.books.bytesReceived.Add(uint64(n))
	} else {
		n, err = s.readByTheClock(p)
	}
	if err != nil && s.hasHungUp() {
		err = io.EOF
	}
	return n, err
}

// readByTheClock reads what is there, and pauses where nothing is.
func (s *socket) readByTheClock(p []byte) (int, error) {
	for {
		if !s.isDrained {
			n, err := s.readNow(p)
			s.isDrained = n < len(p)
			if n > 0 || err != nil {
				s.count(n)
				return n, err
			}
		}
		now := time.Now()
		s.timer.Reset(s.visited(now).Sub(now))
		select {
		case <-s.timer.C:
		case <-s.wake:
		}
		s.reads, s.isDrained = 0, false
	}
}

// count notes a read, and lets the session have its turn when a client sends without end.
func (s *socket) count(n int) {
	s.books.bytesReceived.Add(uint64(n))
	if s.reads++; s.reads == 1 || s.reads > visitReads {
		s.readAt = time.Now()
	}
	if s.reads > visitReads {
		s.reads = 0
		s.visited(s.readAt)
		runtime.Gosched()
	}
}

// readNow reads without waiting. No bytes and no error: nothing is there.
func (s *socket) readNow(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDeaf {
		return 0, io.EOF
	}
	n, err := retry(func() (int, error) { return syscall.Read(s.fd, p) })
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return 0, nil
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	case n == 0:
		return 0, io.EOF
	default:
		return n, nil
	}
}

// retry calls again what a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

func (s *socket) hasHungUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isDeaf
}

// hangUp ends the read that waits, and all later ones: the library waits for no more frames when it closes.
func (s *socket) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDeaf = true
	if s.fd < 0 {
		// It fails only if the socket is closed.
		_ = s.SetReadDeadline(time.Unix(1, 0))
	}
	s.visit()
}

// visit ends the reader's pause.
func (s *socket) visit() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Write takes all of p. What the kernel doesn't take at once waits in the outbox: callers ask hasRoom before they begin a
// message, since a part of a message can't be refused.
func (s *socket) Write(p []byte) (int, error) {
	if s.closed == nil {
		return s.Conn.Write(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGone {
		return 0, net.ErrClosed
	}
	rest := p
	if len(s.outbox) == 0 {
		n, err := s.writeNow(p)
		if err != nil {
			return n, err
		}
		s.progress = time.Now()
		rest = p[n:]
	}
	s.outbox = append(s.outbox, rest...)
	return len(p), nil
}

// flush writes what waits in the outbox, as far as the kernel takes it. It reports whether the client still reads.
func (s *socket) flush(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.outbox) == 0 || s.isGone {
		return true
	}
	// The reader sees errors too, and ends the session.
	if n, _ := s.writeNow(s.outbox); n > 0 {
		s.progress = now
		s.outbox = s.outbox[n:]
		if len(s.outbox) == 0 {
			s.outbox = nil
		}
	}
	return now.Sub(s.progress) < patience
}

// hasRoom reports whether a message of so many bytes may still wait.
func (s *socket) hasRoom(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outbox)+bytes <= maxOutboxBytes
}

// writeNow writes what the kernel takes without waiting. The caller holds the lock.
func (s *socket) writeNow(p []byte) (n int, err error) {
	if s.fd >= 0 {
		n, err = retry(func() (int, error) { return syscall.Write(s.fd, p) })
	} else {
		raw, rawErr := s.tcp.SyscallConn()
		if rawErr != nil {
			return 0, rawErr
		}
		rawErr = raw.Write(func(fd uintptr) bool {
			n, err = retry(func() (int, error) { return syscall.Write(int(fd), p) })
			return true
		})
		if rawErr != nil {
			return 0, rawErr
		}
	}
	if err != nil {
		n = 0
		if errors.Is(err, syscall.EAGAIN) {
			err = nil
		}
	}
	s.books.bytesSent.Add(uint64(n))
	return n, err
}

// Close returns at once. What waits, a close frame at its end, still has a second to leave, and what the client sends is
// thrown away until it hangs up: bytes left unread would make the kernel reset the connection.
func (s *socket) Close() error {
	if s.closed == nil {
		return s.Conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGone {
		return net.ErrClosed
	}
	s.isDeaf, s.isGone = true, true
	s.visit()
	if err := s.detach(); err != nil {
		s.closed()
		return s.Conn.Close()
	}
	go s.linger()
	return nil
}

// linger goes back into the poller for the end. No one else uses the descriptor any more.
func (s *socket) linger() {
	defer s.closed()
	file := os.NewFile(uintptr(s.fd), "socket")
	defer file.Close()
	_ = file.SetDeadline(time.Now().Add(farewell))
	if n, err := file.Write(s.outbox); err == nil {
		s.books.bytesSent.Add(uint64(n))
		if syscall.Shutdown(s.fd, syscall.SHUT_WR) == nil {
			_, _ = io.Copy(io.Discard, struct{ io.Reader }{file})
		}
	}
}
