// The books. Each worker counts in its own memory and publishes a copy once per iteration of its loop, so that another
// thread reads a consistent copy and never waits for the loop.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "protocol.hpp"

namespace gateway {

/// Why a connection ended.
enum class CloseReason : std::uint8_t { client, eof, protocol, utf8, too_big, slow_consumer, shutdown, error };
inline constexpr std::array<std::string_view, 8> close_reason_names = {"client",  "eof",           "protocol", "utf8",
                                                                       "too_big", "slow_consumer", "shutdown", "error"};

/// Why a handshake was refused.
enum class RejectReason : std::uint8_t { handshake, full, draining };
inline constexpr std::array<std::string_view, 3> reject_names = {"handshake", "full", "draining"};

/// Reasons for drops that are not a `Kind`. Their indices follow those of the kinds.
enum class DropReason : std::uint8_t { protocol = kinds, closed };
inline constexpr std::size_t drop_reasons = kinds + 2;
std::string_view drop_name(std::size_t reason);

/// Histogram of the time from when a flush tick was due until it ran.
struct Lateness {
    /// Upper bounds of all buckets except the last, in seconds.
    static constexpr std::array<double, 12> bounds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.025,
                                                      0.05,   0.1,   0.25,  0.5,   1.0,  2.5};

    std::array<std::uint64_t, bounds.size() + 1> buckets{};
    Clock::duration sum{};

    void record(Clock::duration lateness);
};

/// Counters since the start, and gauges of what is held now. Each frame counts as a message.
struct Counts {
    std::uint64_t received = 0;
    std::uint64_t consumed = 0;
    std::uint64_t delivered = 0;
    std::array<std::uint64_t, drop_reasons> dropped{};
    /// Frames that wait for their session's next tick.
    std::uint64_t waiting = 0;
    /// Frames of requests in flight.
    std::uint64_t in_flight = 0;
    std::uint64_t sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t bytes_sent = 0;

    std::uint64_t accepted = 0;
    std::uint64_t open = 0;
    std::array<std::uint64_t, close_reason_names.size()> closed{};
    std::array<std::uint64_t, reject_names.size()> rejected{};

    std::uint64_t requests = 0;
    std::uint64_t answered = 0;
    std::array<std::uint64_t, kinds> failed{};
    std::uint64_t abandoned = 0;
    std::uint64_t requests_in_flight = 0;
    std::uint64_t in_flight_per_connection_max = 0;

    std::uint64_t ticks_flushed = 0;
    std::uint64_t ticks_skipped = 0;
    std::uint64_t ticks_empty = 0;
    Lateness lateness;

    void drop(Kind kind, std::uint64_t frames) { dropped[static_cast<std::size_t>(kind)] += frames; }
    void drop(DropReason reason, std::uint64_t messages) { dropped[static_cast<std::size_t>(reason)] += messages; }
    void close(CloseReason reason) { ++closed[static_cast<std::size_t>(reason)]; }
    void reject(RejectReason reason) { ++rejected[static_cast<std::size_t>(reason)]; }
    std::uint64_t buffered_bytes() const { return (waiting + in_flight) * frame_bytes; }

    Counts& operator+=(const Counts& other);
};

/// The counters of one worker, as it last published them.
class PublishedCounts {
  public:
    void publish(const Counts& counts) {
        const std::lock_guard lock(mutex_);
        counts_ = counts;
    }
    Counts read() const {
        const std::lock_guard lock(mutex_);
        return counts_;
    }

  private:
    mutable std::mutex mutex_;
    Counts counts_;
};

/// The counters of all workers, and the state that workers share.
class Books {
  public:
    /// Adds the counters of a worker. Must be called before any thread reads.
    PublishedCounts& add_worker() { return *workers_.emplace_back(std::make_unique<PublishedCounts>()); }

    /// Returns the sum over all workers. It is consistent, because the counters of each worker are.
    Counts read() const;

    /// Open connections, over all workers.
    std::atomic<std::uint64_t> connections = 0;
    /// Whether handshakes are accepted; false once the gateway stops.
    std::atomic<bool> accepting = true;

  private:
    std::vector<std::unique_ptr<PublishedCounts>> workers_;
};

}  // namespace gateway
