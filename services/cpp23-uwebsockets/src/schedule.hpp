// When a session's flush ticks are due, and when its socket is read in between. No I/O; callers pass the time.
#pragma once

#include <optional>

#include "protocol.hpp"

namespace gateway {

/// Longest time between two reads of a started session's socket. The contract allows 500 ms for the reply to a
/// ping.
inline constexpr milliseconds visit_interval{400};

/// Ticks at multiples of an interval after a first one. The schedule is absolute: it doesn't drift, and lateness
/// doesn't accumulate.
class Schedule {
  public:
    Schedule(TimePoint first, milliseconds interval) : due_(first), interval_(interval) {}

    /// Returns when the next visit is due: at the tick, or at one of the fewest equal steps before it.
    TimePoint next_visit(TimePoint now) const {
        const auto left = due_ - now;
        if (left <= visit_interval) {
            return due_;
        }
        const auto steps = (left + visit_interval - Clock::duration(1)) / visit_interval;
        return now + left / steps;
    }

    /// Returns the lateness of the tick that is due at `now`, if one is. The next tick is the first one in the
    /// future.
    std::optional<Clock::duration> tick(TimePoint now) {
        if (now < due_) {
            return std::nullopt;
        }
        const auto lateness = now - due_;
        due_ += interval_ * (lateness / interval_ + 1);
        return lateness;
    }

  private:
    TimePoint due_;
    milliseconds interval_;
};

}  // namespace gateway
