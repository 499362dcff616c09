package main

// One session: a goroutine that reads the client's messages and runs the ticks, and another one while a request is in
// flight.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// background is the context of all reads. A cancellable context would cost a registration per read.
var background = context.Background()

// closeReason is why a session ended: its label in the books, and the Close frame for the client, if any.
type closeReason struct {
	label string
	// code is 0 if no Close frame is sent.
	code    websocket.StatusCode
	message string
	// refused means that a complete message violated the contract. The books count it as a received message.
	refused bool
}

var (
	reasonClient        = closeReason{label: "client"}
	reasonEOF           = closeReason{label: "eof"}
	reasonError         = closeReason{label: "error"}
	reasonTooBig        = closeReason{label: "too_big", code: websocket.StatusMessageTooBig}
	reasonSlowConsumer  = closeReason{label: "slow_consumer", code: websocket.StatusTryAgainLater, message: "client does not read"}
	reasonShutdown      = closeReason{label: "shutdown", code: websocket.StatusGoingAway, message: "gateway stops"}
	reasonExpectedStart = refusal(websocket.StatusProtocolError, "first message must be start")
	reasonExpectedAudio = refusal(websocket.StatusProtocolError, "expected binary PCM frames after start")
	reasonWrongLength   = refusal(websocket.StatusUnsupportedData, "expected 640 byte PCM frame")
)

func refusal(code websocket.StatusCode, message string) closeReason {
	return closeReason{label: "protocol", code: code, message: message, refused: true}
}

// session is the state of one client's session.
type session struct {
	gateway    *gateway
	conn       *websocket.Conn
	socket     *socket
	connection connection
	// message has room for one byte more than a frame, so that a longer message is detected.
	message [frameBytes + 1]byte

	mu      sync.Mutex
	backlog backlog
	// schedule has an interval of 0 before the start message.
	schedule schedule
	// pending is the request in flight, or nil. A single pointer enforces the contract's rule of one request.
	pending *pendingRequest
	// isDraining is set when the gateway stops; audio that the client has sent by then is still processed. isInputDone is
	// set when all of it is read.
	isDraining, isInputDone bool
	// closeReason is nil while the session is open.
	closeReason *closeReason
}

// pendingRequest is a request in flight and the frames that it carries.
type pendingRequest struct {
	readSpan
	batch         batch
	startedAt     time.Time
	flushLateness time.Duration
	context       context.Context
	cancel        context.CancelFunc
}

// run serves the session until it has ended and its Close frame is written.
func (s *session) run() {
	reason := s.finish(s.read())
	if reason.code == 0 {
		_ = s.conn.CloseNow()
		return
	}
	// Close writes the Close frame, unless the library has written one already. It then waits for the client's frame;
	// closeRead makes that read end at once.
	s.socket.closeRead()
	_ = s.conn.Close(reason.code, reason.message)
}

// read reads messages until the session ends, and returns the reason.
func (s *session) read() closeReason {
	kind, reader, err := s.conn.Reader(background)
	if err != nil {
		return reasonOf(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return reasonOf(err)
	}
	if kind != websocket.MessageText || !isStart(text) {
		return reasonExpectedStart
	}
	if err := s.start(s.socket.readAt); err != nil {
		return reasonError
	}
	for {
		kind, length, err := s.nextMessage()
		switch {
		case err != nil:
			return reasonOf(err)
		case kind == websocket.MessageText:
			return reasonExpectedAudio
		case length != frameBytes:
			return reasonWrongLength
		}
		s.receiveFrame(s.message[:frameBytes], s.socket.readAt)
	}
}

// nextMessage reads one message. Bytes beyond the length of a frame are read and discarded.
func (s *session) nextMessage() (kind websocket.MessageType, length int, err error) {
	kind, reader, err := s.conn.Reader(background)
	if err != nil {
		return 0, 0, err
	}
	for {
		n, err := reader.Read(s.message[min(length, frameBytes):])
		length += n
		if errors.Is(err, io.EOF) {
			return kind, length, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// reasonOf maps an error of the library to the reason why the session ends.
func reasonOf(err error) closeReason {
	var networkErr *net.OpError
	switch {
	case websocket.CloseStatus(err) != -1:
		return reasonClient
	case errors.Is(err, websocket.ErrMessageTooBig):
		return reasonTooBig
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return reasonEOF
	case errors.As(err, &networkErr):
		return reasonError
	default:
		// The client violated the WebSocket protocol. The library has sent a Close frame, except for a frame without a mask.
		return closeReason{label: "protocol", code: websocket.StatusProtocolError, message: "broken frame"}
	}
}

// start handles the start message: it starts the schedule and removes the socket from the poller.
func (s *session) start(now time.Time) error {
	s.gateway.books.update(func(c *counts) {
		c.received++
		c.consumed++
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining {
		s.endLocked(reasonShutdown)
	}
	if s.closeReason != nil {
		return net.ErrClosed
	}
	s.schedule = s.gateway.schedule(now)
	return s.socket.leavePoller(s.visit)
}

// receiveFrame adds a frame, and drops the oldest one if more than maxBufferedFrames wait.
func (s *session) receiveFrame(frame []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeReason != nil || s.isInputDone {
		return
	}
	s.backlog.add(frame, now)
	isFull := s.backlog.waiting() > s.gateway.config.maxBufferedFrames
	if isFull {
		s.backlog.drop()
	}
	s.gateway.books.receiveFrame(isFull)
}

// visit is called by the reader when it has read all available bytes. It flushes the outbox, runs a tick if one is due, and
// returns the time of the next visit.
func (s *session) visit(now time.Time) time.Time {
	isProgressing := s.socket.flush(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	var f *pendingRequest
	switch lateness, isDue := s.schedule.tick(now); {
	case s.closeReason != nil:
	case !isProgressing:
		s.endLocked(reasonSlowConsumer)
	case s.isDraining && !s.isInputDone:
		s.isInputDone = true
		if s.pending == nil {
			f = s.lastRequest()
		}
	case isDue && !s.isInputDone:
		f = s.tick(now, lateness)
	}
	if f != nil {
		go s.execute(f)
	}
	return s.schedule.nextVisit(now)
}

// tick counts a tick. It returns the request to send, or nil if the tick is skipped or empty. The caller holds the lock.
func (s *session) tick(now time.Time, lateness time.Duration) *pendingRequest {
	isIdle, waiting := s.pending == nil, s.backlog.waiting()
	s.gateway.books.tick(isIdle, waiting > 0, lateness)
	if isIdle && waiting > 0 {
		return s.startRequest(now, lateness)
	}
	return nil
}

// startRequest reports dropped frames and returns a request with all waiting audio, or nil if the report ended the
// session. The caller holds the lock and has checked that no request is in flight and that audio waits.
func (s *session) startRequest(now time.Time, lateness time.Duration) *pendingRequest {
	if dropped := s.backlog.takeOverflow(); dropped != nil {
		limit := s.gateway.config.maxBufferedFrames
		message := fmt.Sprintf("%d frames waited: the oldest %d were dropped", limit, dropped.frames)
		s.report(*dropped, &failure{kind: kindOverflow, message: message}, lateness, nil)
		if s.closeReason != nil {
			return nil
		}
	}
	f := &pendingRequest{startedAt: now, flushLateness: lateness}
	f.readSpan, f.batch = s.backlog.take()
	f.context, f.cancel = context.WithDeadline(background, now.Add(s.gateway.config.inferenceTimeout))
	s.pending = f
	s.gateway.books.startRequest(f.frames)
	return f
}

// execute sends the request and handles its result. When the gateway stops, it also sends the session's last request.
func (s *session) execute(f *pendingRequest) {
	for f != nil {
		result, failure := s.gateway.inference.recognise(f.context, s.connection, f.span, f.batch)
		f.cancel()
		f = s.completeRequest(f, result, failure)
	}
}

// completeRequest counts the result of a request and sends the partial or the error. When the gateway stops, it returns
// the session's last request, if there is one.
func (s *session) completeRequest(f *pendingRequest, result recognition, failed *failure) *pendingRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeReason != nil {
		// The request was abandoned when the session ended.
		return nil
	}
	s.pending = nil
	s.gateway.books.completeRequest(f.frames, failed)
	if failed == nil {
		s.send(partialMessage(f.span, &result, s.gateway.config.echo, f.flushLateness))
	} else {
		elapsed := time.Since(f.startedAt)
		s.report(f.readSpan, failed, f.flushLateness, &elapsed)
	}
	if s.isInputDone && s.closeReason == nil {
		return s.lastRequest()
	}
	return nil
}

// report sends the client the error message that covers t. The caller holds the lock.
func (s *session) report(t readSpan, f *failure, lateness time.Duration, elapsed *time.Duration) {
	s.send(errorMessage(t.span, f, errorContext{
		oldestAge: time.Since(t.oldestReadAt), newestAge: time.Since(t.newestReadAt),
		flushLateness: lateness, inferenceElapsed: elapsed, bufferedFrames: s.backlog.waiting(),
	}))
}

// send writes a message to the socket, which doesn't block. The caller holds the lock.
func (s *session) send(message []byte) {
	if !s.socket.hasRoom(len(message)) {
		s.endLocked(reasonSlowConsumer)
		return
	}
	if s.conn.Write(background, websocket.MessageText, message) == nil {
		s.gateway.books.update(func(c *counts) { c.sent++ })
	}
}

// hasRoom is the library's OnPingReceived: it reports whether the pong may be sent, and ends the session as a slow consumer
// if not.
func (s *session) hasRoom(_ context.Context, payload []byte) bool {
	if s.socket.hasRoom(len(payload)) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(reasonSlowConsumer)
	return false
}

// drain ends the session once all audio that the client has sent is answered.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDraining = true
	if s.schedule.interval == 0 {
		s.endLocked(reasonShutdown)
		return
	}
	s.socket.wakeReader()
}

// lastRequest returns the session's last request, or ends the session if no audio waits. The caller holds the lock.
func (s *session) lastRequest() *pendingRequest {
	if s.backlog.waiting() > 0 {
		return s.startRequest(time.Now(), 0)
	}
	s.endLocked(reasonShutdown)
	return nil
}

// end is endLocked for callers that don't hold the lock.
func (s *session) end(reason closeReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(reason)
}

// endLocked ends the session: no more messages are handled, and its reader closes the socket. The caller holds the lock.
func (s *session) endLocked(reason closeReason) {
	if s.closeReason == nil {
		s.recordEnd(reason)
		s.socket.closeRead()
	}
}

// finish is called by the reader to end the session. It returns the first reason if the session had ended before.
func (s *session) finish(reason closeReason) closeReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeReason == nil {
		s.recordEnd(reason)
	}
	return *s.closeReason
}

// recordEnd moves the session's frames and its connection to their final counters, and abandons a request in flight. The
// caller holds the lock.
func (s *session) recordEnd(reason closeReason) {
	s.closeReason = &reason
	abandoned := uint64(0)
	if s.pending != nil {
		abandoned = s.pending.frames
		s.pending.cancel()
		s.pending = nil
	}
	s.gateway.books.closeConnection(reason, s.backlog.waiting(), abandoned)
	s.backlog.clear()
}
