package main

// When a session's flush ticks are due. Pure.

import "time"

// pause is the longest time between two looks at a socket. Pings and closes are answered within 500 ms; half of it leaves room.
const pause = 250 * time.Millisecond

// schedule has ticks at multiples of an interval after a first one. It doesn't drift, and lateness doesn't add up.
type schedule struct {
	// due is when the next tick is due.
	due      time.Time
	interval time.Duration
}

// tick returns how late the tick is that runs now; false if none is due yet. The next one is the first in the future.
func (s *schedule) tick(now time.Time) (lateness time.Duration, isDue bool) {
	lateness = now.Sub(s.due)
	if lateness < 0 {
		return 0, false
	}
	missed := lateness / s.interval
	s.due = s.due.Add((missed + 1) * s.interval)
	return lateness, true
}

// wake returns when to look at the socket next: at the tick, or a whole number of pauses before it.
func (s *schedule) wake(now time.Time) time.Time {
	until := s.due.Sub(now)
	if until <= 0 {
		return now
	}
	// The pauses that still fit in between, without one that would begin now.
	return s.due.Add(-(until - 1) / pause * pause)
}
