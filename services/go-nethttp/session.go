package main

// One session: a goroutine that reads its client's messages and runs its ticks, and one for each request in flight.

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

// background is the context of all reads: one that can end would cost a registration per read.
var background = context.Background()

// ending is why a session ended: its name in the books, and the close frame that the client gets, if any.
type ending struct {
	reason string
	// code is 0 where there is no close frame to send.
	code    websocket.StatusCode
	message string
	// refused says that a whole message was refused.
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

// session is one client, from its upgrade on.
type session struct {
	gateway *gateway
	conn    *websocket.Conn
	socket  *socket
	lane    lane
	// message has room for one byte more than a frame, so that a longer message shows.
	message [frameBytes + 1]byte

	mu      sync.Mutex
	backlog backlog
	// schedule has no interval before the start message.
	schedule schedule
	// flight is the request in flight: there is no place for a second one.
	flight *flight
	// isDraining says that the gateway stops: what the client has sent by now still counts. isLeaving says that all of that
	// is read.
	isDraining, isLeaving bool
	// over is why the session ended; nil while it lives.
	over *ending
}

// flight is a request in flight, and what it is about.
type flight struct {
	taken
	batch         batch
	began         time.Time
	flushLateness time.Duration
	context       context.Context
	cancel        context.CancelFunc
}

// run serves the session until it has ended and its close frame is on its way.
func (s *session) run() {
	end := s.read()
	end = s.finish(end)
	if end.code == 0 {
		_ = s.conn.CloseNow()
		return
	}
	// The library writes the close frame, unless it has written one itself, and finds the end of the stream.
	s.socket.hangUp()
	_ = s.conn.Close(end.code, end.message)
}

// read takes messages until the session ends, and returns why.
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

// next reads one message. What is longer than a frame is read to its end and thrown away.
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

// endOf says what an error of the library means.
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
		// The client broke a rule of WebSocket. The library has said so, but for a frame without a mask.
		return ending{reason: "protocol", code: websocket.StatusProtocolError, message: "broken frame"}
	}
}

// start begins the schedule, and takes the socket out of the poller.
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

// admit takes a frame, and drops the oldest one if too many wait now.
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

// visit is what the reader does when it has read all that its client sent. It returns when to look again.
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

// tick returns the request that a tick makes, if it makes one. The caller holds the lock.
func (s *session) tick(now time.Time, lateness time.Duration) *flight {
	isFree, waiting := s.flight == nil, s.backlog.waiting()
	s.gateway.books.tick(isFree, waiting > 0, lateness)
	if isFree && waiting > 0 {
		return s.depart(now, lateness)
	}
	return nil
}

// depart reports what was dropped, and makes a request of all audio that waits; none if the report ended the session. The
// caller holds the lock, and has seen that no request is in flight and that audio waits.
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

// fly makes the request, and passes on what came of it.
func (s *session) fly(f *flight) {
	for f != nil {
		answer, failed := s.gateway.inference.recognise(f.context, s.lane, f.span, f.batch)
		f.cancel()
		f = s.land(f, answer, failed)
	}
}

// land passes on what came of a request. When the gateway stops, it returns the session's last request, if there is one.
func (s *session) land(f *flight, answer recognition, failed *failure) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		// finish has abandoned it.
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

// report says to the client why frames got no partial. The caller holds the lock.
func (s *session) report(t taken, f *failure, lateness time.Duration, elapsed *time.Duration) {
	s.say(errorMessage(t.span, f, wait{
		oldestAge: time.Since(t.oldestRead), newestAge: time.Since(t.newestRead),
		flushLateness: lateness, inferenceElapsed: elapsed, bufferedFrames: s.backlog.waiting(),
	}))
}

// say hands a message to the socket, which doesn't block. The caller holds the lock.
func (s *session) say(message []byte) {
	if !s.socket.hasRoom(len(message)) {
		s.stop(endSlowConsumer)
		return
	}
	if s.conn.Write(background, websocket.MessageText, message) == nil {
		s.gateway.books.enter(func(c *counts) { c.sent++ })
	}
}

// hasRoom is asked before the library answers a ping.
func (s *session) hasRoom(_ context.Context, payload []byte) bool {
	if s.socket.hasRoom(len(payload)) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(endSlowConsumer)
	return false
}

// drain ends the session once all that its client has sent is answered.
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

// leave returns the session's last request, or ends it if there is none to make. The caller holds the lock.
func (s *session) leave() *flight {
	if s.backlog.waiting() > 0 {
		return s.depart(time.Now(), 0)
	}
	s.stop(endShutdown)
	return nil
}

// stopAs ends the session from outside.
func (s *session) stopAs(end ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(end)
}

// stop ends the session: from now on nothing of it is done. Its reader closes it. The caller holds the lock.
func (s *session) stop(end ending) {
	if s.over == nil {
		s.account(end)
		s.socket.hangUp()
	}
}

// finish is the reader's way to end the session. It returns why the session ended first.
func (s *session) finish(end ending) ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.account(end)
	}
	return *s.over
}

// account closes the books of the session. The caller holds the lock.
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
