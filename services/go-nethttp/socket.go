package main

// The TCP connection below a WebSocket, as a net.Conn for the library.
//
// Until a session starts, Go's poller wakes the reader as usual. From then on the socket is out of the poller and the
// reader visits it at times of the session's schedule: it reads all available bytes and pauses until the next visit. A
// wake-up for each of 50 frames per second costs more than the processing of the frames. Writes never block, and a close
// lingers so that no reset overtakes the Close frame.

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
	// maxOutboxBytes limits the bytes that wait for a client, and stallTimeout the time without progress. Both are from the
	// contract.
	maxOutboxBytes = 64 << 10
	stallTimeout   = 10 * time.Second
	// lingerTimeout limits the close handshake: writing the Close frame, and waiting until the client closes the connection.
	lingerTimeout = time.Second
	// maxVisitReads is the maximum of reads per visit, of 4 KiB each, so that a client that floods does not delay its own
	// ticks.
	maxVisitReads = 64
)

// socket is an accepted connection.
type socket struct {
	net.Conn
	tcp   *net.TCPConn
	books *books

	// isWebSocket is set when the upgrade begins: bytes read from then on are WebSocket bytes.
	isWebSocket atomic.Bool
	// Only the reader uses the next fields. readAt is when bytes were last read; timer ends a pause.
	readAt time.Time
	timer  *time.Timer
	// reads counts the reads of a visit. isEmpty means that the last read left no bytes in the socket.
	reads   int
	isEmpty bool
	// onVisit is called when all available bytes are read, or after maxVisitReads reads. It returns the time of the next
	// visit.
	onVisit func(now time.Time) time.Time
	// wake ends a pause early.
	wake chan struct{}
	// onClose is called when the socket is finally closed. It is nil until the upgrade is complete.
	onClose func()

	mu sync.Mutex
	// fd is the socket's descriptor once it is out of the poller, else -1. It is used only under the lock.
	fd int
	// isReadClosed makes reads return io.EOF. isClosed also makes writes fail, because the socket is closing.
	isReadClosed, isClosed bool
	// outbox holds the bytes that the kernel hasn't taken; lastProgress is when it last took some.
	outbox       []byte
	lastProgress time.Time
}

type socketKey struct{}

// withSocket is the http.Server's ConnContext; it makes the socket available to handlers.
func withSocket(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, conn)
}

// listener wraps accepted connections as sockets.
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

// leavePoller removes the socket from Go's poller. From now on the reader calls onVisit.
func (s *socket) leavePoller(onVisit func(now time.Time) time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return net.ErrClosed
	}
	s.onVisit = onVisit
	s.timer = time.NewTimer(0)
	return s.detach()
}

// detach duplicates the socket's descriptor and closes the original one, which removes it from the poller.
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
	err = raw.Control(func(original uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, original, syscall.F_DUPFD_CLOEXEC, 0)
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

// Read reads from the client. After closeRead it returns io.EOF.
func (s *socket) Read(p []byte) (n int, err error) {
	if s.onVisit == nil {
		n, err = s.Conn.Read(p)
		if !s.isWebSocket.Load() {
			return n, err
		}
		s.readAt = time.Now()
		s.books.bytesReceived.Add(uint64(n))
	} else {
		n, err = s.readOnVisits(p)
	}
	if err != nil && s.hasClosedRead() {
		err = io.EOF
	}
	return n, err
}

// readOnVisits reads available bytes. If there are none, it calls onVisit and pauses until the next visit.
func (s *socket) readOnVisits(p []byte) (int, error) {
	for {
		if !s.isEmpty {
			n, err := s.readNow(p)
			s.isEmpty = n < len(p)
			if n > 0 || err != nil {
				s.count(n)
				return n, err
			}
		}
		now := time.Now()
		s.timer.Reset(s.onVisit(now).Sub(now))
		select {
		case <-s.timer.C:
		case <-s.wake:
		}
		s.reads, s.isEmpty = 0, false
	}
}

// count counts a read. After maxVisitReads reads it calls onVisit, so that a client that never stops sending cannot
// starve its session.
func (s *socket) count(n int) {
	s.books.bytesReceived.Add(uint64(n))
	if s.reads++; s.reads == 1 || s.reads > maxVisitReads {
		s.readAt = time.Now()
	}
	if s.reads > maxVisitReads {
		s.reads = 0
		s.onVisit(s.readAt)
		runtime.Gosched()
	}
}

// readNow reads without blocking. It returns 0 and no error if no bytes are available.
func (s *socket) readNow(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReadClosed {
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

// retry repeats a system call while it fails with EINTR.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

func (s *socket) hasClosedRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isReadClosed
}

// closeRead ends a blocked read and all later ones, so that the library waits for no more frames when it closes.
func (s *socket) closeRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isReadClosed = true
	if s.fd < 0 {
		// Fails only if the socket is closed.
		_ = s.SetReadDeadline(time.Unix(1, 0))
	}
	s.wakeReader()
}

// wakeReader ends the reader's pause early.
func (s *socket) wakeReader() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Write always takes all of p. Bytes that the kernel doesn't take at once wait in the outbox. Callers check hasRoom before
// they begin a message, since a part of a message can't be refused.
func (s *socket) Write(p []byte) (int, error) {
	if s.onClose == nil {
		return s.Conn.Write(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return 0, net.ErrClosed
	}
	remaining := p
	if len(s.outbox) == 0 {
		n, err := s.writeNow(p)
		if err != nil {
			return n, err
		}
		s.lastProgress = time.Now()
		remaining = p[n:]
	}
	s.outbox = append(s.outbox, remaining...)
	return len(p), nil
}

// flush writes as much of the outbox as the kernel takes. It reports false if there was no progress for stallTimeout.
func (s *socket) flush(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.outbox) == 0 || s.isClosed {
		return true
	}
	// The reader gets the same error and ends the session.
	if n, _ := s.writeNow(s.outbox); n > 0 {
		s.lastProgress = now
		s.outbox = s.outbox[n:]
		if len(s.outbox) == 0 {
			s.outbox = nil
		}
	}
	return now.Sub(s.lastProgress) < stallTimeout
}

// hasRoom reports whether the outbox may take this number of bytes.
func (s *socket) hasRoom(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outbox)+bytes <= maxOutboxBytes
}

// writeNow writes as many bytes as the kernel takes without blocking. The caller holds the lock.
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

// Close returns at once. For at most a second, linger writes the outbox, with the Close frame at its end, and discards what
// the client sends: if bytes were left unread, the kernel would reset the connection.
func (s *socket) Close() error {
	if s.onClose == nil {
		return s.Conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return net.ErrClosed
	}
	s.isReadClosed, s.isClosed = true, true
	s.wakeReader()
	if err := s.detach(); err != nil {
		s.onClose()
		return s.Conn.Close()
	}
	go s.linger()
	return nil
}

// linger returns the socket to the poller and finishes the close. No other goroutine uses the descriptor any more.
func (s *socket) linger() {
	defer s.onClose()
	file := os.NewFile(uintptr(s.fd), "socket")
	defer file.Close()
	_ = file.SetDeadline(time.Now().Add(lingerTimeout))
	if n, err := file.Write(s.outbox); err == nil {
		s.books.bytesSent.Add(uint64(n))
		if syscall.Shutdown(s.fd, syscall.SHUT_WR) == nil {
			_, _ = io.Copy(io.Discard, struct{ io.Reader }{file})
		}
	}
}
