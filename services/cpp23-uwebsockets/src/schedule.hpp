// When a session's flush ticks are due, and when its socket is read in between. Pure.
#pragma once

#include <optional>

#include "protocol.hpp"

namespace gateway {

/// Longest time between two reads of a started session's socket: pings must be answered within 500 ms.
inline constexpr milliseconds visit_interval{400};

/// Ticks at multiples of an interval after a first one. It doesn't drift, and lateness doesn't add up.
class Schedule {
  public:
    Schedule(TimePoint first, milliseconds interval) : due_(first), interval_(interval) {}

    /// When the session is visited next: at the tick, or at one of the fewest equal steps before it.
    TimePoint next_visit(TimePoint now) const {
        const auto left = due_ - now;
        if (left <= visit_interval) {
            return due_;
        }
        const auto steps = (left + visit_interval - Clock::duration(1)) / visit_interval;
        return now + left / steps;
    }

    /// How late the tick is that is due at `now`; absent if none is due. The next one is the first in the future.
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
