// The metrics port: /healthz, /readyz, /stats and /metrics, on its own thread and loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "books.hpp"

namespace gateway {

/// Returns the body of `/stats`.
std::string stats_json(const Counts& counts, double uptime_seconds);

/// Returns the body of `/metrics`; without the memory metric if `resident_bytes` is absent.
std::string prometheus(const Counts& counts, std::optional<std::uint64_t> resident_bytes);

/// Serves the metrics port on a new thread until the process exits. Returns the bound port, or nothing if it can't
/// be bound.
std::optional<std::uint16_t> serve_metrics(const std::string& host, std::uint16_t port, const Books& books);

}  // namespace gateway
