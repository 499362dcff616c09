// The settings, from flags and from environment variables of the same meaning. A flag overrides its variable.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "protocol.hpp"

namespace gateway {

/// The gateway's validated settings, as listed in services/README.md ("Gateways").
struct Config {
    std::string host = "127.0.0.1";
    std::uint16_t port = 3000;
    std::uint16_t metrics_port = 0;
    /// Host name or address; an IPv6 address has no brackets here.
    std::string inference_host = "127.0.0.1";
    std::uint16_t inference_port = 9000;
    /// `host:port` as in the URL.
    std::string inference_authority = "127.0.0.1:9000";
    std::uint32_t cpu_passes = 4;
    std::uint64_t model_delay_ms = 75;
    milliseconds flush_interval{1000};
    milliseconds flush_phase_jitter{0};
    milliseconds inference_timeout{2000};
    /// HTTP/2 connections to the inference per worker; a session uses one of them.
    std::uint32_t inference_http_clients = 2;
    /// Threads that serve sessions; 0 means one per available CPU.
    std::uint32_t worker_threads = 0;
    std::uint64_t max_buffered_frames = 200;
    /// Maximum of open connections; 0 means no limit.
    std::uint64_t max_connections = 0;
    /// Whether to print the version, or the usage, and exit.
    bool shows_version = false;
    bool shows_help = false;

    /// Returns the value of an environment variable; null if it isn't set.
    using Environment = std::function<const char*(const char*)>;

    /// Reads the environment, then `arguments`, which override it. The error names the setting and its value.
    static std::expected<Config, std::string> parse(std::span<const std::string_view> arguments,
                                                    const Environment& environment);

    /// Number of threads that serve sessions, at least one.
    unsigned workers() const;
};

/// Returns the text of --help.
std::string usage();

}  // namespace gateway
