// Sequence numbers and read times of the frames that wait in a session's buffer, and of those that were dropped. No
// audio, no I/O.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "protocol.hpp"

namespace gateway {

/// Frames that were removed from the backlog, and when the first and the last of them were read from the socket.
struct ReadSpan {
    Span span;
    TimePoint oldest_read_at;
    TimePoint newest_read_at;
};

/// The waiting frames of one session.
class Backlog {
  public:
    /// Adds a frame that was read at `now`.
    void add(TimePoint now) {
        ++last_added_;
        if (!marks_.empty() && marks_.back().read_at == now) {
            marks_.back().newest = last_added_;
        } else {
            marks_.push_back({last_added_, now});
        }
    }

    std::uint64_t waiting() const { return last_added_ - last_removed_; }

    /// Removes the oldest `frames`: at least one, and no more than wait.
    ReadSpan remove(std::uint64_t frames) {
        ReadSpan removed{{last_removed_ + 1, frames}, marks_.front().read_at, {}};
        last_removed_ += frames;
        auto last = marks_.begin();
        while (last->newest < last_removed_) {
            ++last;
        }
        removed.newest_read_at = last->read_at;
        marks_.erase(marks_.begin(), last->newest == last_removed_ ? last + 1 : last);
        return removed;
    }

    /// Drops the oldest `frames`: at least one, and no more than wait.
    void drop_oldest(std::uint64_t frames) {
        const ReadSpan later = remove(frames);
        if (!overflow_) {
            overflow_ = later;
            return;
        }
        // An overflow is reported before the next batch is taken, so these frames directly follow the dropped ones.
        overflow_->span.frames += frames;
        overflow_->newest_read_at = later.newest_read_at;
    }

    /// Takes the record of frames that were dropped and not reported yet.
    std::optional<ReadSpan> take_overflow() { return std::exchange(overflow_, std::nullopt); }

  private:
    /// The time at which a group of frames was read: those after the previous mark, up to `newest`.
    struct Mark {
        std::uint64_t newest;
        TimePoint read_at;
    };

    std::vector<Mark> marks_;
    std::uint64_t last_removed_ = 0;
    std::uint64_t last_added_ = 0;
    std::optional<ReadSpan> overflow_;
};

}  // namespace gateway
