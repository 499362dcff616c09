#include "protocol.hpp"

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <format>
#include <iterator>
#include <utility>

namespace gateway {
namespace {

/// Accepts one flat object of strings and numbers with unique keys, and passes each member to `member`. Numbers are
/// passed as text, which distinguishes 7.0 from 7.
template <typename Member>
class FlatObject : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, FlatObject<Member>> {
  public:
    explicit FlatObject(Member member) : member_(std::move(member)) {}

    // RapidJSON calls this for every kind of value that has no handler here.
    bool Default() { return false; }
    bool StartObject() { return std::exchange(outside_, false); }
    bool EndObject(rapidjson::SizeType) { return true; }
    bool Key(const char* text, rapidjson::SizeType length, bool) {
        key_.assign(text, length);
        return !outside_;
    }
    bool String(const char* text, rapidjson::SizeType length, bool) { return value(text, length, true); }
    bool RawNumber(const char* text, rapidjson::SizeType length, bool) { return value(text, length, false); }

  private:
    bool value(const char* text, std::size_t length, bool is_string) {
        return !outside_ && member_(std::string_view(key_), std::string_view(text, length), is_string);
    }

    Member member_;
    std::string key_;
    bool outside_ = true;
};

/// Parses `text` as such an object. Returns a description of the error, or nothing.
template <typename Member>
std::optional<std::string> parse_flat(std::string_view text, Member member) {
    constexpr unsigned flags = rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseValidateEncodingFlag;
    FlatObject<Member> object(std::move(member));
    rapidjson::MemoryStream stream(text.data(), text.size());
    rapidjson::Reader reader;
    if (const auto result = reader.Parse<flags>(stream, object); result.IsError()) {
        return std::format("{} at byte {}", rapidjson::GetParseError_En(result.Code()), result.Offset());
    }
    // RapidJSON takes a zero byte for the end of the stream.
    if (stream.Tell() != text.size()) {
        return std::format("The document ends at byte {} of {}.", stream.Tell(), text.size());
    }
    return std::nullopt;
}

template <typename Integer>
bool read_integer(std::string_view text, Integer& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size();
}

bool is_finite(std::string_view number) { return std::isfinite(std::strtod(std::string(number).c_str(), nullptr)); }

constexpr std::array<std::string_view, 6> response_keys = {"rms",     "zero_crossings", "checksum",
                                                           "samples", "transcript",     "audio_bytes"};

/// Parses the member with the index `key` of a response.
bool read_member(Recognition& recognition, std::size_t key, std::string_view value, bool is_string) {
    if (is_string != (key == 4)) {
        return false;
    }
    switch (key) {
        case 0:
            recognition.rms = value;
            return is_finite(value);
        case 1:
            return read_integer(value, recognition.zero_crossings);
        case 2:
            return read_integer(value, recognition.checksum);
        case 3:
            return read_integer(value, recognition.samples);
        case 4:
            recognition.transcript = value;
            return true;
        default:
            return read_integer(value, recognition.audio_bytes);
    }
}

/// Appends `text` as a JSON string.
void put_string(std::string& out, std::string_view text) {
    constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
    constexpr std::string_view escapes = "\"\\bfnrt";
    out += '"';
    for (const char character : text) {
        if (const auto found = escaped.find(character); found != std::string_view::npos) {
            out += '\\';
            out += escapes[found];
        } else if (static_cast<unsigned char>(character) < 0x20) {
            std::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(character));
        } else {
            out += character;
        }
    }
    out += '"';
}

/// Formats a duration as the shortest decimal number of milliseconds that parses to the same value; always with a
/// decimal point.
std::string in_milliseconds(Clock::duration duration) {
    const double value = static_cast<double>(std::chrono::nanoseconds(duration).count()) / 1e6;
    std::array<char, 64> text{};
    const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed).ptr;
    std::string number(text.begin(), end);
    return number.contains('.') ? number : number + ".0";
}

std::string_view stage(Kind kind) {
    switch (kind) {
        case Kind::overflow:
            return "websocket_receive";
        case Kind::parse_error:
            return "inference_response_parse";
        default:
            return "inference_request";
    }
}

bool is_retryable(const Failure& failure) {
    switch (failure.kind) {
        case Kind::timeout:
        case Kind::connection_reset:
        case Kind::http_429:
            return true;
        case Kind::http_5xx:
            return failure.status && *failure.status >= 500 && *failure.status < 600;
        default:
            return false;
    }
}

}  // namespace

bool is_start(std::string_view text) {
    int members = 0;
    const auto member = [&members](std::string_view key, std::string_view value, bool is_string) {
        return members++ == 0 && is_string && key == "type" && value == "start";
    };
    return !parse_flat(text, member) && members == 1;
}

std::expected<Recognition, std::string> Recognition::parse(std::string_view body, Span span, std::uint32_t cpu_passes) {
    Recognition recognition;
    unsigned parsed_keys = 0;
    const auto member = [&](std::string_view key, std::string_view value, bool is_string) {
        for (std::size_t index = 0; index < response_keys.size(); ++index) {
            if (response_keys[index] == key) {
                const bool is_new = !(parsed_keys & (1u << index));
                parsed_keys |= 1u << index;
                return is_new && read_member(recognition, index, value, is_string);
            }
        }
        return false;
    };
    if (const auto parse_error = parse_flat(body, member)) {
        return std::unexpected(std::format("the inference's answer can't be read: {}", *parse_error));
    }
    if (parsed_keys != (1u << response_keys.size()) - 1) {
        return std::unexpected("the inference's answer lacks keys");
    }
    const std::uint64_t samples = cpu_passes * frame_samples * span.frames;
    if (recognition.samples != samples) {
        return std::unexpected(
            std::format("the inference's answer has {} samples instead of {}", recognition.samples, samples));
    }
    if (recognition.audio_bytes != span.audio_bytes()) {
        return std::unexpected(std::format("the inference's answer has {} bytes of audio instead of {}",
                                           recognition.audio_bytes, span.audio_bytes()));
    }
    if (recognition.transcript.empty()) {
        return std::unexpected("the inference's answer has an empty transcript");
    }
    return recognition;
}

std::string partial(Span span, const Recognition& recognition, EchoedSettings echo, Clock::duration flush_lateness) {
    std::string out;
    out.reserve(384 + recognition.transcript.size());
    std::format_to(std::back_inserter(out),
                   R"({{"type":"partial","oldest_frame_seq":{},"newest_frame_seq":{},"frames":{},"rms":{},)"
                   R"("zero_crossings":{},"checksum":{},"samples":{},"transcript":)",
                   span.oldest, span.newest(), span.frames, recognition.rms, recognition.zero_crossings,
                   recognition.checksum, recognition.samples);
    put_string(out, recognition.transcript);
    std::format_to(std::back_inserter(out),
                   R"(,"audio_bytes":{},"cpu_passes":{},"model_delay_ms":{},"flush_lateness_ms":{},)"
                   R"("inflight_model_jobs":0}})",
                   recognition.audio_bytes, echo.cpu_passes, echo.model_delay_ms, in_milliseconds(flush_lateness));
    return out;
}

std::string_view name(Kind kind) {
    constexpr std::array<std::string_view, kinds> names = {"overflow", "timeout",  "connection_reset",
                                                           "http_429", "http_5xx", "parse_error"};
    return names[static_cast<std::size_t>(kind)];
}

std::optional<Failure> failure_of(int status) {
    if (status >= 200 && status < 300) {
        return std::nullopt;
    }
    return Failure{status == 429 ? Kind::http_429 : Kind::http_5xx, status,
                   std::format("the inference answered {}", status)};
}

std::string error(Span span, const Failure& failure, const ErrorContext& context) {
    std::string out = R"({"type":"error","stage":")";
    std::format_to(std::back_inserter(out), R"({}","kind":"{}","message":)", stage(failure.kind), name(failure.kind));
    put_string(out, failure.message);
    std::format_to(std::back_inserter(out),
                   R"(,"oldest_frame_seq":{},"newest_frame_seq":{},"frames":{},"audio_bytes":{},"oldest_age_ms":{},)"
                   R"("newest_age_ms":{},"flush_lateness_ms":{},"inference_elapsed_ms":{},)"
                   R"("inflight_gateway_batches":{},"gateway_buffer_frames":{},"inference_status":{},"retryable":{}}})",
                   span.oldest, span.newest(), span.frames, span.audio_bytes(), in_milliseconds(context.oldest_age),
                   in_milliseconds(context.newest_age), in_milliseconds(context.flush_lateness),
                   context.inference_elapsed ? in_milliseconds(*context.inference_elapsed) : "null",
                   context.inference_elapsed ? 1 : 0, context.buffered_frames,
                   failure.status ? std::to_string(*failure.status) : "null", is_retryable(failure));
    return out;
}

}  // namespace gateway
