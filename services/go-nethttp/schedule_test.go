package main

import (
	"testing"
	"time"
)

func TestSchedule_TicksOnceAndReturnsItsLateness(t *testing.T) {
	s := schedule{due: epoch, interval: time.Second}
	for _, step := range []struct {
		at       time.Duration
		lateness time.Duration
		isDue    bool
	}{
		{-time.Millisecond, 0, false},
		{3 * time.Millisecond, 3 * time.Millisecond, true},
		{4 * time.Millisecond, 0, false},
		{time.Second, 0, true},
	} {
		lateness, isDue := s.tick(epoch.Add(step.at))
		if lateness != step.lateness || isDue != step.isDue {
			t.Errorf("at %v: %v, %v", step.at, lateness, isDue)
		}
	}
}

func TestSchedule_SkipsMissedTicks(t *testing.T) {
	s := schedule{due: epoch, interval: time.Second}
	if lateness, _ := s.tick(epoch.Add(3400 * time.Millisecond)); lateness != 3400*time.Millisecond {
		t.Errorf("%v late", lateness)
	}
	if _, isDue := s.tick(epoch.Add(3999 * time.Millisecond)); isDue {
		t.Error("a missed tick runs")
	}
	if lateness, isDue := s.tick(epoch.Add(4002 * time.Millisecond)); lateness != 2*time.Millisecond || !isDue {
		t.Errorf("the lateness of a stall stays: %v", lateness)
	}
}

func TestSchedule_VisitsOftenEnoughForPings(t *testing.T) {
	for _, interval := range []time.Duration{10, 50, 333, 350, 361, 1000, 1001, 60_000} {
		s := schedule{due: epoch.Add(interval*time.Millisecond + 1234567), interval: interval * time.Millisecond}
		for now := epoch; now.Before(s.due); {
			next := s.nextVisit(now)
			if pause := next.Sub(now); pause <= 0 || pause > 400*time.Millisecond {
				t.Fatalf("interval %v: %v after %v", interval, pause, now.Sub(epoch))
			}
			now = next
		}
	}
}

func TestSchedule_WakesWithinARoundAfterATickIsDue(t *testing.T) {
	s := schedule{due: epoch.Add(1_234_567), interval: time.Second}
	if late := s.nextVisit(epoch).Sub(s.due); late < 0 || late >= tickRound {
		t.Errorf("%v late", late)
	}
}
