// Which sessions are visited when: a timer wheel that owns them. One timer turns it for all.
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

/// Time between two turns. What is due in between waits for the turn: half of it is the mean lateness of a tick, and
/// the longer it is, the more sessions share one wake-up.
inline constexpr milliseconds turn_interval{5};

/// Owns `Item`s, each of which is visited at a time of its own, in turns.
template <typename Item>
class Wheel {
  public:
    explicit Wheel(TimePoint now) : began_(now) {}

    void add(std::unique_ptr<Item> item, TimePoint due) { slot(due).push_back(std::move(item)); }

    bool is_empty() const {
        return std::ranges::all_of(slots_, [](const auto& slot) { return slot.empty(); });
    }

    /// Visits what is due at `now`. `visit` says when it wants the item again, or that the item is to be destroyed.
    template <typename Visit>
    void turn(TimePoint now, Visit visit) {
        const std::int64_t until = (now - began_) / turn_interval;
        // After a long stall each slot is due once. All are emptied first: what is visited goes back into one of them.
        std::vector<std::unique_ptr<Item>> due;
        for (std::int64_t at = std::max(turned_, until - slots) + 1; at <= until; ++at) {
            std::ranges::move(std::exchange(slots_[index(at)], {}), std::back_inserter(due));
        }
        turned_ = std::max(turned_, until);
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

    /// The first turn at or after `due`: never one that is over, and no further than the wheel reaches.
    auto& slot(TimePoint due) {
        const std::int64_t turn = (due - began_ + turn_interval - Clock::duration(1)) / turn_interval;
        return slots_[index(std::clamp(turn, turned_ + 1, turned_ + slots - 1))];
    }

    TimePoint began_;
    /// The last turn that was made.
    std::int64_t turned_ = 0;
    std::array<std::vector<std::unique_ptr<Item>>, slots> slots_;
};

}  // namespace gateway
