package main

// When a session's flush ticks are due. Pure.

import "time"

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
