// Sequence numbers and read times of the frames that wait in a session's buffer, and of those that were dropped. No
// audio, no I/O.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "protocol.hpp"

namespace gateway {

/// Frames that left the backlog, and when they were read from the socket.
struct Taken {
    Span span;
    TimePoint oldest_read;
    TimePoint newest_read;
};

/// The waiting frames of one session.
class Backlog {
  public:
    /// Adds a frame that was read at `now`.
    void arrived(TimePoint now) {
        ++came_;
        if (!marks_.empty() && marks_.back().at == now) {
            marks_.back().newest = came_;
        } else {
            marks_.push_back({came_, now});
        }
    }

    std::uint64_t waiting() const { return came_ - left_; }

    /// Takes the oldest `frames`: at least one, and no more than wait.
    Taken leave(std::uint64_t frames) {
        Taken taken{{left_ + 1, frames}, marks_.front().at, {}};
        left_ += frames;
        auto last = marks_.begin();
        while (last->newest < left_) {
            ++last;
        }
        taken.newest_read = last->at;
        marks_.erase(marks_.begin(), last->newest == left_ ? last + 1 : last);
        return taken;
    }

    /// Drops the oldest `frames`: at least one, and no more than wait.
    void drop_oldest(std::uint64_t frames) {
        const Taken later = leave(frames);
        if (!overflow_) {
            overflow_ = later;
            return;
        }
        // An overflow is reported before the next batch is taken, so these frames directly follow the dropped ones.
        overflow_->span.frames += frames;
        overflow_->newest_read = later.newest_read;
    }

    /// Takes the record of frames that were dropped and not reported yet.
    std::optional<Taken> take_overflow() { return std::exchange(overflow_, std::nullopt); }

  private:
    /// The time at which a group of frames was read: those after the previous mark, up to `newest`.
    struct Mark {
        std::uint64_t newest;
        TimePoint at;
    };

    std::vector<Mark> marks_;
    std::uint64_t left_ = 0;
    std::uint64_t came_ = 0;
    std::optional<Taken> overflow_;
};

}  // namespace gateway
