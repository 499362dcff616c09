package main

// The TCP connection under a WebSocket. The library's writes block, and it closes at once; the contract wants a bounded
// outbox for a client that doesn't read, and a close that no reset overtakes.

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
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
)

// socket is a net.Conn for net/http until the upgrade. From then on writes never block, and Close lingers.
type socket struct {
	net.Conn
	tcp   *net.TCPConn
	raw   syscall.RawConn
	books *books

	// reading and writing say that bytes belong to the WebSocket.
	reading, writing atomic.Bool
	// deaf makes reads end.
	deaf atomic.Bool
	// readAt is when bytes were last read. It belongs to the reader.
	readAt time.Time

	mu sync.Mutex
	// outbox is what the kernel hasn't taken; flushed is closed when it has, and nil while nothing waits.
	outbox  []byte
	flushed chan struct{}
	// stalled is called when the client has read nothing for too long, closed when the socket is closed at last.
	stalled, closed func()
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
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &socket{Conn: tcp, tcp: tcp, raw: raw, books: l.books}, nil
}

// upgraded says that from now on a WebSocket writes. The functions are those of the fields.
func (s *socket) upgraded(stalled, closed func()) {
	s.stalled, s.closed = stalled, closed
	s.writing.Store(true)
}

// Read reads what the client sends; after hangUp it ends.
func (s *socket) Read(p []byte) (int, error) {
	if s.deaf.Load() {
		return 0, io.EOF
	}
	n, err := s.Conn.Read(p)
	if s.reading.Load() {
		s.readAt = time.Now()
		s.books.bytesReceived.Add(uint64(n))
	}
	if err != nil && s.deaf.Load() {
		err = io.EOF
	}
	return n, err
}

// hangUp ends the read that waits, and all later ones: the library waits for no more frames when it closes.
func (s *socket) hangUp() {
	s.deaf.Store(true)
	// It fails only if the socket is closed.
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

// Write takes all of p. What the kernel doesn't take at once waits in the outbox: callers ask hasRoom before they begin a
// message, since a part of a message can't be refused.
func (s *socket) Write(p []byte) (int, error) {
	if !s.writing.Load() {
		return s.Conn.Write(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := p
	if s.flushed == nil {
		n, err := s.writeNow(p)
		if err != nil {
			return n, err
		}
		if rest = p[n:]; len(rest) == 0 {
			return len(p), nil
		}
		s.flushed = make(chan struct{})
		go s.flush(s.flushed)
	}
	s.outbox = append(s.outbox, rest...)
	return len(p), nil
}

// hasRoom reports whether a message of so many bytes may still wait.
func (s *socket) hasRoom(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outbox)+bytes <= maxOutboxBytes
}

// writeNow writes what the kernel takes without waiting.
func (s *socket) writeNow(p []byte) (n int, err error) {
	controlErr := s.raw.Write(func(fd uintptr) bool {
		n, err = writeFD(fd, p)
		return true
	})
	if controlErr != nil {
		return 0, controlErr
	}
	s.books.bytesSent.Add(uint64(n))
	return n, err
}

// writeFD writes once. No bytes and no error: the kernel takes nothing now.
func writeFD(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, err
		default:
			return n, nil
		}
	}
}

// flush writes the outbox until it is empty, or nothing more can be written.
func (s *socket) flush(flushed chan struct{}) {
	defer close(flushed)
	for {
		s.mu.Lock()
		rest := s.outbox
		if len(rest) == 0 {
			s.outbox, s.flushed = nil, nil
			s.mu.Unlock()
			return
		}
		if !s.deaf.Load() {
			_ = s.SetWriteDeadline(time.Now().Add(patience))
		}
		s.mu.Unlock()
		n, err := s.writeSoon(rest)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !s.deaf.Load():
			// The session ends, and linger sets the last deadline.
			s.stalled()
			_ = s.SetWriteDeadline(time.Now().Add(farewell))
		case err != nil:
			return
		}
		s.books.bytesSent.Add(uint64(n))
		s.mu.Lock()
		s.outbox = s.outbox[n:]
		s.mu.Unlock()
	}
}

// writeSoon waits until the kernel takes some of p.
func (s *socket) writeSoon(p []byte) (n int, err error) {
	waitErr := s.raw.Write(func(fd uintptr) bool {
		n, err = writeFD(fd, p)
		return n > 0 || err != nil
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// Close returns at once. What waits, a close frame at its end, still has a second to leave, and what the client sends is
// thrown away until it hangs up: bytes left unread would make the kernel reset the connection.
func (s *socket) Close() error {
	if !s.writing.Load() {
		return s.Conn.Close()
	}
	s.deaf.Store(true)
	go s.linger()
	return nil
}

func (s *socket) linger() {
	defer s.closed()
	defer s.Conn.Close()
	s.mu.Lock()
	// The flusher sets no deadline from now on.
	_ = s.SetDeadline(time.Now().Add(farewell))
	flushed := s.flushed
	s.mu.Unlock()
	if flushed != nil {
		<-flushed
	}
	if s.tcp.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, s.Conn)
	}
}
