package main

// When a session's flush ticks are due, and when its socket is visited in between. No I/O; callers pass the time.

import "time"

const (
	// visitInterval is the time between two visits of a socket, without rounding. The contract allows 500 ms for the reply
	// to a ping.
	visitInterval = 340 * time.Millisecond
	// Sessions wake up at multiples of a round, so that one wake-up of the process serves many. The cost is a mean
	// lateness of half a tickRound.
	tickRound  = 5 * time.Millisecond
	visitRound = 20 * time.Millisecond
)

// epoch is the time from which rounds are counted.
var epoch = time.Now()

// schedule has ticks at multiples of an interval after a first one. It is absolute: it doesn't drift, and lateness doesn't
// accumulate.
type schedule struct {
	// due is the time at which the next tick is due.
	due      time.Time
	interval time.Duration
}

// tick returns the lateness of the tick that is due, or false if none is due yet. The next tick is the first one in the
// future.
func (s *schedule) tick(now time.Time) (lateness time.Duration, isDue bool) {
	lateness = now.Sub(s.due)
	if lateness < 0 {
		return 0, false
	}
	missed := lateness / s.interval
	s.due = s.due.Add((missed + 1) * s.interval)
	return lateness, true
}

// nextVisit returns the time of the next visit: the tick, or a whole number of visit intervals before it, rounded up to a
// round.
func (s *schedule) nextVisit(now time.Time) time.Time {
	untilTick := s.due.Sub(now)
	// The number of intervals between now and the tick, without one that would begin now.
	if intervals := (untilTick - visitRound) / visitInterval; intervals > 0 {
		return roundUp(s.due.Add(-intervals*visitInterval), visitRound)
	}
	return roundUp(s.due, tickRound)
}

func roundUp(at time.Time, round time.Duration) time.Time {
	return epoch.Add((at.Sub(epoch) + round - 1) / round * round)
}
