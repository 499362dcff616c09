#include "backlog.hpp"

#include <doctest/doctest.h>

using namespace gateway;

namespace {

const TimePoint first = TimePoint{} + std::chrono::hours(1);
const TimePoint second = first + std::chrono::seconds(1);

void add_frames(Backlog& backlog, int frames, TimePoint at) {
    for (; frames > 0; --frames) {
        backlog.add(at);
    }
}

}  // namespace

TEST_CASE("frames are removed in order, with the times at which they were read") {
    Backlog backlog;
    add_frames(backlog, 3, first);
    add_frames(backlog, 2, second);
    const ReadSpan one = backlog.remove(2);
    CHECK(one.span == Span{1, 2});
    CHECK(one.newest_read_at == first);
    const ReadSpan two = backlog.remove(2);
    CHECK(two.span == Span{3, 2});
    CHECK(two.oldest_read_at == first);
    CHECK(two.newest_read_at == second);
    const ReadSpan three = backlog.remove(1);
    CHECK(three.span == Span{5, 1});
    CHECK(three.oldest_read_at == second);
    CHECK(backlog.waiting() == 0);
}

TEST_CASE("frames dropped before a report are reported together") {
    Backlog backlog;
    add_frames(backlog, 3, first);
    add_frames(backlog, 3, second);
    backlog.drop_oldest(2);
    backlog.drop_oldest(3);
    const auto dropped = backlog.take_overflow();
    REQUIRE(dropped);
    CHECK(dropped->span == Span{1, 5});
    CHECK(dropped->oldest_read_at == first);
    CHECK(dropped->newest_read_at == second);
    CHECK_FALSE(backlog.take_overflow());
    CHECK(backlog.remove(1).span == Span{6, 1});
}
