// What goes over the wire as JSON: the start message, the inference's answer, and the two messages to a client. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

namespace gateway {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using std::chrono::milliseconds;

/// Bytes of one frame of audio: 20 ms, 16 kHz, mono, 16 bits.
inline constexpr std::size_t frame_bytes = 640;
inline constexpr std::uint64_t frame_samples = 320;
/// Longest data message that a client may send.
inline constexpr std::size_t max_message_bytes = 64 << 10;

/// Whether `text` is exactly the object {"type":"start"}.
bool is_start(std::string_view text);

/// Frames that follow each other: what a message covers.
struct Span {
    /// Sequence number of the first; frames count from 1.
    std::uint64_t oldest = 0;
    /// At least one.
    std::uint64_t frames = 0;

    std::uint64_t newest() const { return oldest + frames - 1; }
    std::uint64_t audio_bytes() const { return frames * frame_bytes; }
    bool operator==(const Span&) const = default;
};

/// The inference's answer to one batch.
struct Recognition {
    /// A JSON number, as the inference wrote it.
    std::string rms;
    std::uint64_t zero_crossings = 0;
    std::uint32_t checksum = 0;
    /// Of all passes together.
    std::uint64_t samples = 0;
    std::string transcript;
    std::uint64_t audio_bytes = 0;

    /// Reads an answer about `span`. The error says what is wrong with it.
    static std::expected<Recognition, std::string> parse(std::string_view body, Span span, std::uint32_t cpu_passes);
};

/// Settings that are echoed in every partial.
struct Echo {
    std::uint32_t cpu_passes = 0;
    std::uint64_t model_delay_ms = 0;
};

/// The partial about `span`, as JSON.
std::string partial(Span span, const Recognition& answer, Echo echo, Clock::duration flush_lateness);

/// Why frames got no partial.
enum class Kind : std::uint8_t { overflow, timeout, connection_reset, http_429, http_5xx, parse_error };
inline constexpr std::size_t kinds = 6;

/// Its name on the wire and in the counters.
std::string_view name(Kind kind);

/// Why a batch got no partial.
struct Failure {
    Kind kind = Kind::timeout;
    /// Of the inference's answer, where there was one.
    std::optional<int> status;
    /// What happened, for a reader.
    std::string message;
};

/// The failure that an answer with this status is; none if it is a success.
std::optional<Failure> failure_of(int status);

/// How long the frames of a span have waited, and what waits behind them.
struct Wait {
    Clock::duration oldest_age{};
    Clock::duration newest_age{};
    Clock::duration flush_lateness{};
    /// Since the request began; absent where there was none.
    std::optional<Clock::duration> inference_elapsed;
    std::uint64_t buffered_frames = 0;
};

/// The error about `span`, as JSON.
std::string error(Span span, const Failure& failure, const Wait& wait);

}  // namespace gateway
