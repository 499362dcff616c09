// The metrics port: /healthz, /readyz, /stats and /metrics, on a thread and a loop of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "books.hpp"

namespace gateway {

/// `/stats`.
std::string stats_json(const Counts& counts, double uptime_seconds);

/// `/metrics`; without the memory where the system doesn't say.
std::string prometheus(const Counts& counts, std::optional<std::uint64_t> resident_bytes);

/// Serves the port from a new thread for as long as the process lives, and returns the port; absent if it can't be
/// bound.
std::optional<std::uint16_t> serve_metrics(const std::string& host, std::uint16_t port, const Books& books);

}  // namespace gateway
