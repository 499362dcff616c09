package main

// When a session's flush ticks are due. Pure.

import "time"

const (
	// pause is the time between two looks at a socket, but for the rounding. Pings and closes are answered within 500 ms.
	pause = 340 * time.Millisecond
	// Sessions wake up at multiples of a round, so that many do at once. Half a tick's round is the mean lateness that it
	// costs.
	tickRound = 5 * time.Millisecond
	lookRound = 20 * time.Millisecond
)

// epoch is where rounds are counted from.
var epoch = time.Now()

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

// wake returns when to look at the socket next: at the tick, or a whole number of pauses before it; at the end of a round.
func (s *schedule) wake(now time.Time) time.Time {
	until := s.due.Sub(now)
	// The pauses that still fit in between, without one that would begin now.
	if pauses := (until - lookRound) / pause; pauses > 0 {
		return roundUp(s.due.Add(-pauses*pause), lookRound)
	}
	return roundUp(s.due, tickRound)
}

func roundUp(at time.Time, round time.Duration) time.Time {
	return epoch.Add((at.Sub(epoch) + round - 1) / round * round)
}
