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

// ending is the cause of a session's end: its label in the books, and the Close frame for the client, if any.
type ending struct {
	reason string
	// code is 0 if no Close frame is sent.
	code    websocket.StatusCode
	message string
	// refused means that a complete message was refused, which the books count as a message.
	refused bool
}

var (
	endClient       = ending{reason: "client"}
	endEOF          = ending{reason: "eof"}
	endError        = ending{reason: "error"}
	endTooBig       = ending{reason: "too_big", code: websocket.StatusMessageTooBig}
	endSlowConsumer = ending{reason: "slow_consumer", code: websocket.StatusTryAgainLater, message: "client does not read"}
	endShutdown     = ending{reason: "shutdown", code: websocket.StatusGoingAway, message: "gateway stops"}
	endNoStart      = refuse(websocket.StatusProtocolError, "first message must be start")
	endText         = refuse(websocket.StatusProtocolError, "expected binary PCM frames after start")
	endLength       = refuse(websocket.StatusUnsupportedData, "expected 640 byte PCM frame")
)

func refuse(code websocket.StatusCode, message string) ending {
	return ending{reason: "protocol", code: code, message: message, refused: true}
}

// session is the state of one client's session.
type session struct {
	gateway *gateway
	conn    *websocket.Conn
	socket  *socket
	lane    lane
	// message has room for one byte more than a frame, so that a longer message is detected.
	message [frameBytes + 1]byte

	mu      sync.Mutex
	backlog backlog
	// schedule has an interval of 0 before the start message.
	schedule schedule
	// flight is the request in flight, or nil. A single pointer enforces the contract's rule of one request.
	flight *flight
	// isDraining is set when the gateway stops; audio that the client has sent by then is still processed. isLeaving is set
	// when all of it is read.
	isDraining, isLeaving bool
	// over is the cause of the session's end; nil while the session is open.
	over *ending
}

// flight is a request in flight and the frames that it carries.
type flight struct {
	taken
	batch         batch
	began         time.Time
	flushLateness time.Duration
	context       context.Context
	cancel        context.CancelFunc
}

// run serves the session until it has ended and its Close frame is written.
func (s *session) run() {
	end := s.read()
	end = s.finish(end)
	if end.code == 0 {
		_ = s.conn.CloseNow()
		return
	}
	// Close writes the Close frame, unless the library has written one already. It then waits for the client's frame; hangUp
	// makes that read end at once.
	s.socket.hangUp()
	_ = s.conn.Close(end.code, end.message)
}

// read reads messages until the session ends, and returns the cause.
func (s *session) read() ending {
	kind, reader, err := s.conn.Reader(background)
	if err != nil {
		return endOf(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return endOf(err)
	}
	if kind != websocket.MessageText || !isStart(text) {
		return endNoStart
	}
	if err := s.start(s.socket.readAt); err != nil {
		return endError
	}
	for {
		kind, length, err := s.next()
		switch {
		case err != nil:
			return endOf(err)
		case kind == websocket.MessageText:
			return endText
		case length != frameBytes:
			return endLength
		}
		s.admit(s.message[:frameBytes], s.socket.readAt)
	}
}

// next reads one message. Bytes beyond the length of a frame are read and discarded.
func (s *session) next() (kind websocket.MessageType, length int, err error) {
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

// endOf maps an error of the library to the cause of the session's end.
func endOf(err error) ending {
	var network *net.OpError
	switch {
	case websocket.CloseStatus(err) != -1:
		return endClient
	case errors.Is(err, websocket.ErrMessageTooBig):
		return endTooBig
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return endEOF
	case errors.As(err, &network):
		return endError
	default:
		// The client violated the WebSocket protocol. The library has sent a Close frame, except for a frame without a mask.
		return ending{reason: "protocol", code: websocket.StatusProtocolError, message: "broken frame"}
	}
}

// start handles the start message: it starts the schedule and removes the socket from the poller.
func (s *session) start(now time.Time) error {
	s.gateway.books.enter(func(c *counts) {
		c.received++
		c.consumed++
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining {
		s.stop(endShutdown)
	}
	if s.over != nil {
		return net.ErrClosed
	}
	s.schedule = s.gateway.schedule(now)
	return s.socket.leavePoller(s.visit)
}

// admit adds a frame, and drops the oldest one if more than maxBufferedFrames wait.
func (s *session) admit(frame []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil || s.isLeaving {
		return
	}
	s.backlog.add(frame, now)
	isFull := s.backlog.waiting() > s.gateway.config.maxBufferedFrames
	if isFull {
		s.backlog.drop()
	}
	s.gateway.books.frame(isFull)
}

// visit is called by the reader when it has read all available bytes. It flushes the outbox, runs a tick if one is due, and
// returns the time of the next visit.
func (s *session) visit(now time.Time) time.Time {
	isReading := s.socket.flush(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	var f *flight
	switch lateness, isDue := s.schedule.tick(now); {
	case s.over != nil:
	case !isReading:
		s.stop(endSlowConsumer)
	case s.isDraining && !s.isLeaving:
		s.isLeaving = true
		if s.flight == nil {
			f = s.leave()
		}
	case isDue && !s.isLeaving:
		f = s.tick(now, lateness)
	}
	if f != nil {
		go s.fly(f)
	}
	return s.schedule.wake(now)
}

// tick counts a tick. It returns the request to send, or nil if the tick is skipped or empty. The caller holds the lock.
func (s *session) tick(now time.Time, lateness time.Duration) *flight {
	isFree, waiting := s.flight == nil, s.backlog.waiting()
	s.gateway.books.tick(isFree, waiting > 0, lateness)
	if isFree && waiting > 0 {
		return s.depart(now, lateness)
	}
	return nil
}

// depart reports dropped frames and returns a request with all waiting audio, or nil if the report ended the session. The
// caller holds the lock and has checked that no request is in flight and that audio waits.
func (s *session) depart(now time.Time, lateness time.Duration) *flight {
	if dropped := s.backlog.takeOverflow(); dropped != nil {
		most := s.gateway.config.maxBufferedFrames
		message := fmt.Sprintf("%d frames waited: the oldest %d were dropped", most, dropped.frames)
		s.report(*dropped, &failure{kind: kindOverflow, message: message}, lateness, nil)
		if s.over != nil {
			return nil
		}
	}
	f := &flight{began: now, flushLateness: lateness}
	f.taken, f.batch = s.backlog.take()
	f.context, f.cancel = context.WithDeadline(background, now.Add(s.gateway.config.inferenceTimeout))
	s.flight = f
	s.gateway.books.depart(f.frames)
	return f
}

// fly sends the request and handles its result. When the gateway stops, it also sends the session's last request.
func (s *session) fly(f *flight) {
	for f != nil {
		answer, failed := s.gateway.inference.recognise(f.context, s.lane, f.span, f.batch)
		f.cancel()
		f = s.land(f, answer, failed)
	}
}

// land counts the result of a request and sends the partial or the error. When the gateway stops, it returns the session's
// last request, if there is one.
func (s *session) land(f *flight, answer recognition, failed *failure) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		// The request was abandoned when the session ended.
		return nil
	}
	s.flight = nil
	s.gateway.books.land(f.frames, failed)
	if failed == nil {
		s.say(partialMessage(f.span, &answer, s.gateway.config.echo, f.flushLateness))
	} else {
		elapsed := time.Since(f.began)
		s.report(f.taken, failed, f.flushLateness, &elapsed)
	}
	if s.isLeaving && s.over == nil {
		return s.leave()
	}
	return nil
}

// report sends the client the error message that covers t. The caller holds the lock.
func (s *session) report(t taken, f *failure, lateness time.Duration, elapsed *time.Duration) {
	s.say(errorMessage(t.span, f, wait{
		oldestAge: time.Since(t.oldestRead), newestAge: time.Since(t.newestRead),
		flushLateness: lateness, inferenceElapsed: elapsed, bufferedFrames: s.backlog.waiting(),
	}))
}

// say writes a message to the socket, which doesn't block. The caller holds the lock.
func (s *session) say(message []byte) {
	if !s.socket.hasRoom(len(message)) {
		s.stop(endSlowConsumer)
		return
	}
	if s.conn.Write(background, websocket.MessageText, message) == nil {
		s.gateway.books.enter(func(c *counts) { c.sent++ })
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
	s.stop(endSlowConsumer)
	return false
}

// drain ends the session once all audio that the client has sent is answered.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDraining = true
	if s.schedule.interval == 0 {
		s.stop(endShutdown)
		return
	}
	s.socket.visit()
}

// leave returns the session's last request, or ends the session if no audio waits. The caller holds the lock.
func (s *session) leave() *flight {
	if s.backlog.waiting() > 0 {
		return s.depart(time.Now(), 0)
	}
	s.stop(endShutdown)
	return nil
}

// stopAs is stop for callers that don't hold the lock.
func (s *session) stopAs(end ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(end)
}

// stop ends the session: no more messages are handled, and its reader closes the socket. The caller holds the lock.
func (s *session) stop(end ending) {
	if s.over == nil {
		s.account(end)
		s.socket.hangUp()
	}
}

// finish is called by the reader to end the session. It returns the first cause if the session had ended before.
func (s *session) finish(end ending) ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.account(end)
	}
	return *s.over
}

// account moves the session's frames and its connection to their final counters, and abandons a request in flight. The
// caller holds the lock.
func (s *session) account(end ending) {
	s.over = &end
	abandoned := uint64(0)
	if s.flight != nil {
		abandoned = s.flight.frames
		s.flight.cancel()
		s.flight = nil
	}
	s.gateway.books.end(end, s.backlog.waiting(), abandoned)
	s.backlog.clear()
}
