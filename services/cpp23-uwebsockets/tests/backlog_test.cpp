#include "backlog.hpp"

#include <doctest/doctest.h>

using namespace gateway;

namespace {

const TimePoint first = TimePoint{} + std::chrono::hours(1);
const TimePoint second = first + std::chrono::seconds(1);

void arrive(Backlog& backlog, int frames, TimePoint at) {
    for (; frames > 0; --frames) {
        backlog.arrived(at);
    }
}

}  // namespace

TEST_CASE("frames leave in order and remember when they were read") {
    Backlog backlog;
    arrive(backlog, 3, first);
    arrive(backlog, 2, second);
    const Taken one = backlog.leave(2);
    CHECK(one.span == Span{1, 2});
    CHECK(one.newest_read == first);
    const Taken two = backlog.leave(2);
    CHECK(two.span == Span{3, 2});
    CHECK(two.oldest_read == first);
    CHECK(two.newest_read == second);
    const Taken three = backlog.leave(1);
    CHECK(three.span == Span{5, 1});
    CHECK(three.oldest_read == second);
    CHECK(backlog.waiting() == 0);
}

TEST_CASE("what is dropped before a report is reported as one") {
    Backlog backlog;
    arrive(backlog, 3, first);
    arrive(backlog, 3, second);
    backlog.drop_oldest(2);
    backlog.drop_oldest(3);
    const auto dropped = backlog.take_overflow();
    REQUIRE(dropped);
    CHECK(dropped->span == Span{1, 5});
    CHECK(dropped->oldest_read == first);
    CHECK(dropped->newest_read == second);
    CHECK_FALSE(backlog.take_overflow());
    CHECK(backlog.leave(1).span == Span{6, 1});
}
