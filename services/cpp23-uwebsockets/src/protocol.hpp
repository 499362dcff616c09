// The JSON messages: the start message, the inference's response, and the partials and errors that clients get. No
// I/O.
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

/// Size of one audio frame in bytes: 20 ms of 16 kHz mono PCM with 16-bit samples.
inline constexpr std::size_t frame_bytes = 640;
inline constexpr std::uint64_t frame_samples = 320;
/// Largest data message that a client may send, in bytes.
inline constexpr std::size_t max_message_bytes = 64 << 10;

/// Whether `text` is the JSON object {"type":"start"} without further keys.
bool is_start(std::string_view text);

/// A sequence of consecutive frames, which one message covers.
struct Span {
    /// Sequence number of the first frame. A session's first frame is 1.
    std::uint64_t oldest = 0;
    /// Number of frames, at least 1.
    std::uint64_t frames = 0;

    std::uint64_t newest() const { return oldest + frames - 1; }
    std::uint64_t audio_bytes() const { return frames * frame_bytes; }
    bool operator==(const Span&) const = default;
};

/// The inference's response to one batch.
struct Recognition {
    /// The text of the JSON number, as the inference wrote it.
    std::string rms;
    std::uint64_t zero_crossings = 0;
    std::uint32_t checksum = 0;
    /// Samples processed in all passes together.
    std::uint64_t samples = 0;
    std::string transcript;
    std::uint64_t audio_bytes = 0;

    /// Parses the response to the batch `span` and checks its counts. The error describes the mismatch.
    static std::expected<Recognition, std::string> parse(std::string_view body, Span span, std::uint32_t cpu_passes);
};

/// Settings that every partial repeats.
struct EchoedSettings {
    std::uint32_t cpu_passes = 0;
    std::uint64_t model_delay_ms = 0;
};

/// Returns the partial that covers `span`, as JSON.
std::string partial(Span span, const Recognition& recognition, EchoedSettings echo, Clock::duration flush_lateness);

/// Why frames got no partial.
enum class Kind : std::uint8_t { overflow, timeout, connection_reset, http_429, http_5xx, parse_error };
inline constexpr std::size_t kinds = 6;

/// Returns the value of `kind` in error messages, which is also the label in the books.
std::string_view name(Kind kind);

/// Why a batch gets an error message instead of a partial.
struct Failure {
    Kind kind = Kind::timeout;
    /// HTTP status of the inference's response, if there was one.
    std::optional<int> status;
    /// Human-readable description.
    std::string message;
};

/// Maps an HTTP status to a failure; nothing for 2xx.
std::optional<Failure> failure_of(int status);

/// Times and buffer state that an error message reports.
struct ErrorContext {
    Clock::duration oldest_age{};
    Clock::duration newest_age{};
    Clock::duration flush_lateness{};
    /// Time since the request began; absent if there was no request.
    std::optional<Clock::duration> inference_elapsed;
    std::uint64_t buffered_frames = 0;
};

/// Returns the error that covers `span`, as JSON.
std::string error(Span span, const Failure& failure, const ErrorContext& context);

}  // namespace gateway
