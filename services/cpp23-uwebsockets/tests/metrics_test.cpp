#include "metrics.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace gateway;

namespace {

/// Returns counters with a different value in each field.
Counts sample_counts() {
    Counts counts;
    counts.received = 10;
    counts.consumed = 1;
    counts.delivered = 4;
    counts.drop(Kind::timeout, 2);
    counts.drop(DropReason::closed, 1);
    counts.waiting = 1;
    counts.in_flight = 1;
    counts.close(CloseReason::client);
    counts.reject(RejectReason::full);
    counts.requests_in_flight = 1;
    counts.lateness.record(milliseconds(3));
    counts.lateness.record(milliseconds(9000));
    return counts;
}

}  // namespace

TEST_CASE("stats are JSON in which the messages balance") {
    const auto stats = nlohmann::json::parse(stats_json(sample_counts(), 1.5));
    const auto& messages = stats["messages"];
    std::uint64_t sum = 0;
    for (const auto* key : {"consumed", "delivered", "queued"}) {
        sum += messages[key].get<std::uint64_t>();
    }
    for (const auto& reason : messages["dropped"]) {
        sum += reason.get<std::uint64_t>();
    }
    CHECK(sum == messages["received"]);
    CHECK(stats["inference"]["buffered_bytes"] == 2 * frame_bytes);
    CHECK(stats["connections"]["closed"]["client"] == 1);
    CHECK(stats["application"].is_null());
}

TEST_CASE("metrics list every reason from the start, and histogram buckets are cumulative") {
    const std::string none = prometheus({}, std::nullopt);
    CHECK(none.contains("service_messages_dropped_total{reason=\"parse_error\"} 0\n"));
    CHECK(none.contains("service_inference_failed_total{kind=\"http_429\"} 0\n"));
    CHECK_FALSE(none.contains("service_inference_failed_total{kind=\"overflow\"}"));
    CHECK_FALSE(none.contains("service_process_resident_bytes"));
    const std::string some = prometheus(sample_counts(), 4096);
    CHECK(some.contains("service_flush_lateness_seconds_bucket{le=\"0.002\"} 0\n"));
    CHECK(some.contains("service_flush_lateness_seconds_bucket{le=\"0.005\"} 1\n"));
    CHECK(some.contains("service_flush_lateness_seconds_bucket{le=\"+Inf\"} 2\n"));
    CHECK(some.contains("service_flush_lateness_seconds_count 2\n"));
    CHECK(some.contains("service_process_resident_bytes 4096\n"));
}

TEST_CASE("the counts of several workers are added") {
    Books books;
    books.add_worker().publish(sample_counts());
    books.add_worker().publish(sample_counts());
    const Counts all = books.read();
    CHECK(all.received == 20);
    CHECK(all.dropped[static_cast<std::size_t>(Kind::timeout)] == 4);
    CHECK(all.lateness.buckets.back() == 2);
}
