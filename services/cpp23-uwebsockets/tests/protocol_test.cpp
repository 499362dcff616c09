// Tests with the golden messages of services/testdata, which all gateways share, and of cases that they don't have.
#include "protocol.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

using namespace gateway;

namespace {

using nlohmann::json;

/// Returns a list of the golden messages by its name.
const json& golden(const char* list) {
    static const json document = json::parse(std::ifstream(GOLDEN));
    return document.at(list);
}

std::string text(const json& value) { return value.get<std::string>(); }

Clock::duration duration(const json& of) {
    return std::chrono::round<Clock::duration>(std::chrono::duration<double, std::milli>(of.get<double>()));
}

Kind kind_named(std::string_view expected) {
    for (std::size_t kind = 0; kind < kinds; ++kind) {
        if (name(static_cast<Kind>(kind)) == expected) {
            return static_cast<Kind>(kind);
        }
    }
    FAIL("no kind has this name");
    return Kind::timeout;
}

constexpr std::string_view answer =
    R"({"rms":2425.5,"zero_crossings":7,"checksum":1745339397,"samples":1280,"transcript":"now","audio_bytes":640})";

}  // namespace

TEST_CASE("golden first messages are recognized") {
    int texts = 0;
    for (const auto& entry : golden("client")) {
        if (text(entry["state"]) == "first" && entry.contains("text")) {
            CAPTURE(text(entry["name"]));
            CHECK(is_start(text(entry["text"])) == (text(entry["means"]) == "start"));
            ++texts;
        }
    }
    CHECK(texts > 15);
}

TEST_CASE("a start message followed by a zero byte is rejected") {
    CHECK_FALSE(is_start(std::string_view("{\"type\":\"start\"}\0x", 18)));
    CHECK_FALSE(is_start(std::string_view("{\"type\":\"start\"}\0", 17)));
}

TEST_CASE("golden inference responses are parsed") {
    for (const auto& entry : golden("inference")) {
        CAPTURE(text(entry["name"]));
        const int status = entry["status"].get<int>();
        if (const auto failure = failure_of(status)) {
            CHECK(text(entry["means"]) == "error");
            CHECK(name(failure->kind) == text(entry["kind"]));
            CHECK(failure->status == entry["inference_status"].get<int>());
            continue;
        }
        const auto parsed = Recognition::parse(text(entry["body"]), {1, entry["frames"].get<std::uint64_t>()},
                                               entry["cpu_passes"].get<std::uint32_t>());
        CHECK(parsed.has_value() == (text(entry["means"]) == "partial"));
    }
}

TEST_CASE("partials equal the golden bytes") {
    for (const auto& entry : golden("partial")) {
        const auto& of = entry["of"];
        const Span span{of["oldest_frame_seq"].get<std::uint64_t>(), of["frames"].get<std::uint64_t>()};
        const EchoedSettings echo{of["cpu_passes"].get<std::uint32_t>(), of["model_delay_ms"].get<std::uint64_t>()};
        const auto parsed = Recognition::parse(text(of["body"]), span, echo.cpu_passes);
        REQUIRE(parsed);
        CHECK(partial(span, *parsed, echo, duration(of["flush_lateness_ms"])) == text(entry["text"]));
    }
}

TEST_CASE("errors equal the golden bytes") {
    for (const auto& entry : golden("error")) {
        const auto& of = entry["of"];
        Failure failure{kind_named(text(of["kind"])), {}, std::string(text(of["message"]))};
        if (of["inference_status"].is_number()) {
            failure.status = of["inference_status"].get<int>();
        }
        ErrorContext wait{duration(of["oldest_age_ms"]),
                          duration(of["newest_age_ms"]),
                          duration(of["flush_lateness_ms"]),
                          {},
                          of["gateway_buffer_frames"].get<std::uint64_t>()};
        if (of["inference_elapsed_ms"].is_number()) {
            wait.inference_elapsed = duration(of["inference_elapsed_ms"]);
        }
        const Span span{of["oldest_frame_seq"].get<std::uint64_t>(), of["frames"].get<std::uint64_t>()};
        CHECK(error(span, failure, wait) == text(entry["text"]));
    }
}

TEST_CASE("the status decides whether a failure is retryable") {
    const Span span{1, 1};
    for (const auto& entry : golden("inference")) {
        if (const auto failure = failure_of(entry["status"].get<int>())) {
            const auto expected = entry["retryable"].get<bool>() ? R"("retryable":true)" : R"("retryable":false)";
            CHECK(error(span, *failure, {}).contains(expected));
        }
    }
}

TEST_CASE("no prefix of a response and no changed byte crashes the parser") {
    std::mt19937 random(1);
    for (std::size_t length = 0; length < answer.size(); ++length) {
        CHECK_FALSE(Recognition::parse(answer.substr(0, length), {1, 1}, 4));
        std::string changed(answer);
        changed[length] = static_cast<char>(random());
        const auto parsed = Recognition::parse(changed, {1, 1}, 4);
        // Only fields that are not compared with the batch may have changed.
        CHECK((!parsed || (parsed->samples == 1280 && parsed->audio_bytes == 640 && !parsed->transcript.empty())));
    }
}

TEST_CASE("a response that is not UTF-8 is rejected") {
    std::string bad(answer);
    bad.replace(bad.find("now"), 3, "\xff\xfe!");
    CHECK_FALSE(Recognition::parse(bad, {1, 1}, 4));
}
