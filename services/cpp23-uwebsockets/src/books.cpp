#include "books.hpp"

namespace gateway {
namespace {

template <std::size_t size>
void add(std::array<std::uint64_t, size>& sums, const std::array<std::uint64_t, size>& from) {
    std::ranges::transform(sums, from, sums.begin(), std::plus{});
}

}  // namespace

std::string_view drop_name(std::size_t reason) {
    if (reason < kinds) {
        return name(static_cast<Kind>(reason));
    }
    return static_cast<DropReason>(reason) == DropReason::protocol ? "protocol" : "closed";
}

void Lateness::record(Clock::duration lateness) {
    const double seconds = std::chrono::duration<double>(lateness).count();
    ++buckets[static_cast<std::size_t>(std::ranges::lower_bound(bounds, seconds) - bounds.begin())];
    sum += lateness;
}

Counts& Counts::operator+=(const Counts& other) {
    using Field = std::uint64_t Counts::*;
    static constexpr Field sums[] = {&Counts::received,       &Counts::consumed,      &Counts::delivered,
                                     &Counts::waiting,        &Counts::in_flight,     &Counts::sent,
                                     &Counts::bytes_received, &Counts::bytes_sent,    &Counts::accepted,
                                     &Counts::open,           &Counts::requests,      &Counts::answered,
                                     &Counts::abandoned,      &Counts::ticks_flushed, &Counts::requests_in_flight,
                                     &Counts::ticks_skipped,  &Counts::ticks_empty};
    for (const Field field : sums) {
        this->*field += other.*field;
    }
    in_flight_per_connection_max = std::max(in_flight_per_connection_max, other.in_flight_per_connection_max);
    add(dropped, other.dropped);
    add(closed, other.closed);
    add(rejected, other.rejected);
    add(failed, other.failed);
    add(lateness.buckets, other.lateness.buckets);
    lateness.sum += other.lateness.sum;
    return *this;
}

Counts Books::read() const {
    Counts all;
    for (const auto& worker : workers_) {
        all += worker->read();
    }
    return all;
}

}  // namespace gateway
