#include "schedule.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "timer_wheel.hpp"

using namespace gateway;

namespace {

const TimePoint start = TimePoint{} + std::chrono::hours(1);

}  // namespace

TEST_CASE("a tick runs once and returns its lateness") {
    Schedule schedule(start, milliseconds(1000));
    CHECK_FALSE(schedule.tick(start - milliseconds(1)));
    CHECK(schedule.tick(start + milliseconds(3)) == milliseconds(3));
    CHECK_FALSE(schedule.tick(start + milliseconds(4)));
    CHECK(schedule.tick(start + milliseconds(1000)) == milliseconds(0));
}

TEST_CASE("missed ticks are skipped, and the lateness starts over") {
    Schedule schedule(start, milliseconds(1000));
    CHECK(schedule.tick(start + milliseconds(3400)) == milliseconds(3400));
    CHECK_FALSE(schedule.tick(start + milliseconds(3999)));
    CHECK(schedule.tick(start + milliseconds(4002)) == milliseconds(2));
}

TEST_CASE("a session is visited at its tick and in few equal steps before it") {
    const Schedule schedule(start + milliseconds(1200), milliseconds(1000));
    std::vector<long> visits;
    for (TimePoint now = start; now < start + milliseconds(1200);) {
        now = schedule.next_visit(now);
        visits.push_back((now - start) / milliseconds(1));
    }
    CHECK(visits == std::vector<long>{400, 800, 1200});
}

TEST_CASE("two visits are never further apart than the interval") {
    for (int first = 1; first < 3000; first += 7) {
        const Schedule schedule(start + milliseconds(first), milliseconds(1000));
        const TimePoint next = schedule.next_visit(start);
        CHECK(next > start);
        CHECK(next - start <= visit_interval);
        CHECK(next <= start + milliseconds(first));
    }
}

TEST_CASE("the wheel visits an item in the first turn at or after its time, and destroys it without a next time") {
    TimerWheel<int> wheel(start);
    wheel.add(std::make_unique<int>(7), start + milliseconds(12));
    std::vector<int> visited;
    const auto visit = [&](int& item) {
        visited.push_back(item);
        return visited.size() == 1 ? std::optional(start + milliseconds(300)) : std::nullopt;
    };
    wheel.turn(start + milliseconds(14), visit);
    CHECK(visited.empty());
    wheel.turn(start + milliseconds(15), visit);
    CHECK(visited.size() == 1);
    wheel.turn(start + milliseconds(299), visit);
    CHECK(visited.size() == 1);
    CHECK_FALSE(wheel.is_empty());
    wheel.turn(start + milliseconds(300), visit);
    CHECK(visited.size() == 2);
    CHECK(wheel.is_empty());
}

TEST_CASE("after a long stall the wheel visits every item once and continues") {
    TimerWheel<int> wheel(start);
    for (int item = 0; item < 100; ++item) {
        wheel.add(std::make_unique<int>(item), start + milliseconds(4 * item));
    }
    TimePoint now = start + std::chrono::hours(2);
    int visits = 0;
    const auto visit = [&](int&) {
        ++visits;
        return std::optional(now + milliseconds(10));
    };
    wheel.turn(now, visit);
    CHECK(visits == 100);
    now += milliseconds(15);
    wheel.turn(now, visit);
    CHECK(visits == 200);
}
