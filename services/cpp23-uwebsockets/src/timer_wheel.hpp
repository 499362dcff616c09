// A timer wheel that owns the sessions and visits those that are due. One timer turns it for all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "protocol.hpp"

namespace gateway {

/// Time between two turns. Items that are due in between wait for the next turn: half of this time is the mean
/// lateness of a tick, and the longer it is, the more sessions share one wake-up.
inline constexpr milliseconds turn_interval{5};

/// Owns items of the type `Item` and visits each at its own time, rounded up to a turn.
template <typename Item>
class TimerWheel {
  public:
    explicit TimerWheel(TimePoint now) : origin_(now) {}

    void add(std::unique_ptr<Item> item, TimePoint due) { slot(due).push_back(std::move(item)); }

    bool is_empty() const {
        return std::ranges::all_of(slots_, [](const auto& slot) { return slot.empty(); });
    }

    /// Visits the items that are due at `now`. `visit` returns the time of the item's next visit, or nothing to
    /// destroy the item.
    template <typename Visit>
    void turn(TimePoint now, Visit visit) {
        const std::int64_t current = (now - origin_) / turn_interval;
        // After a long stall each slot is due once. All due slots are emptied first, because visited items return
        // to one of them.
        std::vector<std::unique_ptr<Item>> due;
        for (std::int64_t turn = std::max(last_turn_, current - slots) + 1; turn <= current; ++turn) {
            std::ranges::move(std::exchange(slots_[index(turn)], {}), std::back_inserter(due));
        }
        last_turn_ = std::max(last_turn_, current);
        for (auto& item : due) {
            if (const std::optional<TimePoint> next = visit(*item)) {
                add(std::move(item), *next);
            }
        }
    }

    template <typename Visit>
    void for_each(Visit visit) {
        for (auto& slot : slots_) {
            for (auto& item : slot) {
                visit(*item);
            }
        }
    }

  private:
    static constexpr std::int64_t slots = 128;

    std::size_t index(std::int64_t turn) const { return static_cast<std::size_t>(turn % slots); }

    /// Returns the slot of the first turn at or after `due`; never of a past turn, and at most the wheel's range
    /// ahead.
    auto& slot(TimePoint due) {
        const std::int64_t turn = (due - origin_ + turn_interval - Clock::duration(1)) / turn_interval;
        return slots_[index(std::clamp(turn, last_turn_ + 1, last_turn_ + slots - 1))];
    }

    TimePoint origin_;
    /// Number of the last turn that was processed.
    std::int64_t last_turn_ = 0;
    std::array<std::vector<std::unique_ptr<Item>>, slots> slots_;
};

}  // namespace gateway
