// Which frames of a session wait, since when, and which were dropped: the numbers to the audio in its buffer. Pure.
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

/// Frames that wait.
class Backlog {
  public:
    /// One frame was read at `now`.
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
        // Frames leave in another way only once this was reported, so the later ones follow right behind.
        overflow_->span.frames += frames;
        overflow_->newest_read = later.newest_read;
    }

    /// What was dropped and not reported yet.
    std::optional<Taken> take_overflow() { return std::exchange(overflow_, std::nullopt); }

  private:
    /// The time at which frames were read: those up to `newest`, without those of the mark before.
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
