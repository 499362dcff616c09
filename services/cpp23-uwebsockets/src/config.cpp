#include "config.hpp"

#include <arpa/inet.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <format>
#include <fstream>
#include <iterator>
#include <optional>

namespace gateway {
namespace {

/// Parses a value into its field. Returns a description of the expected value if it is invalid.
using Read = std::function<std::optional<std::string>(Config&, std::string_view)>;

struct Setting {
    /// Name of the environment variable; the flag's name is derived from it.
    std::string_view variable;
    std::string_view help;
    Read read;

    std::string flag() const {
        std::string flag = "--";
        for (const char character : variable) {
            flag += character == '_' ? '-' : static_cast<char>(character - 'A' + 'a');
        }
        return flag;
    }
};

template <typename Value>
void assign(Value& field, std::uint64_t number) {
    field = static_cast<Value>(number);
}
void assign(milliseconds& field, std::uint64_t number) { field = milliseconds(number); }

/// Returns a parser of whole numbers from `min` to `max`.
template <typename Value>
Read number(Value Config::* field, std::uint64_t min, std::uint64_t max) {
    return [=](Config& config, std::string_view text) -> std::optional<std::string> {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
            return std::format("a whole number from {} to {}", min, max);
        }
        assign(config.*field, value);
        return std::nullopt;
    };
}

bool is_address(const std::string& text) {
    in6_addr address{};
    return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

std::optional<std::string> read_host(Config& config, std::string_view text) {
    config.host = text;
    return is_address(config.host) ? std::nullopt : std::optional<std::string>("an IP address");
}

std::optional<std::string> read_url(Config& config, std::string_view text) {
    const std::string expected = "http://host:port";
    constexpr std::string_view scheme = "http://";
    if (!text.starts_with(scheme)) {
        return expected;
    }
    std::string_view authority = text.substr(scheme.size());
    if (authority.ends_with('/')) {
        authority.remove_suffix(1);
    }
    const auto colon = authority.rfind(':');
    if (colon == 0 || colon == std::string_view::npos ||
        authority.find_first_of("/?#@ \t\r\n") != std::string_view::npos) {
        return expected;
    }
    std::string_view host = authority.substr(0, colon);
    const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
    if (host.contains(':') && !is_bracketed) {
        return expected;
    }
    if (number(&Config::inference_port, 1, 65535)(config, authority.substr(colon + 1))) {
        return expected;
    }
    config.inference_authority = authority;
    config.inference_host = is_bracketed ? host.substr(1, host.size() - 2) : host;
    return std::nullopt;
}

const std::vector<Setting>& settings() {
    static const std::vector<Setting> all = {
        {"HOST", "Address to listen on (127.0.0.1)", read_host},
        {"PORT", "Port of the WebSocket (3000); 0 lets the kernel pick", number(&Config::port, 0, 65535)},
        {"METRICS_PORT", "Port of /stats and /metrics (0)", number(&Config::metrics_port, 0, 65535)},
        {"INFERENCE_URL", "The inference (http://127.0.0.1:9000)", read_url},
        {"CPU_PASSES", "Passes that the inference makes over each batch (4)", number(&Config::cpu_passes, 1, 65536)},
        {"MODEL_DELAY_MS", "Echoed in partials (75)", number(&Config::model_delay_ms, 0, 1'000'000'000)},
        {"FLUSH_INTERVAL_MS", "Time between flush ticks (1000)", number(&Config::flush_interval, 10, 60'000)},
        {"FLUSH_PHASE_JITTER_MS", "Longest random shift of a session's ticks (0)",
         number(&Config::flush_phase_jitter, 0, 60'000)},
        {"INFERENCE_TIMEOUT_MS", "Longest time from a tick to the whole answer (2000)",
         number(&Config::inference_timeout, 1, 600'000)},
        {"INFERENCE_HTTP_CLIENTS", "HTTP/2 connections to the inference, per worker (2)",
         number(&Config::inference_http_clients, 1, 4096)},
        {"WORKER_THREADS", "Threads that serve sessions (0: as many as CPUs may be used)",
         number(&Config::worker_threads, 0, 1024)},
        {"MAX_BUFFERED_FRAMES", "Frames that may wait per session (200)",
         number(&Config::max_buffered_frames, 1, 100'000)},
        {"MAX_CONNECTIONS", "Connections that may be open (0: no limit)",
         number(&Config::max_connections, 0, 1'000'000'000)},
    };
    return all;
}

std::optional<std::string> apply(Config& config, const Setting& setting, std::string_view name,
                                 std::string_view value) {
    if (const auto expected = setting.read(config, value)) {
        return std::format("{} is \"{}\", which is not {}", name, value, *expected);
    }
    return std::nullopt;
}

/// Parses a flag and its value, which may be the next argument; advances `at` past both.
std::optional<std::string> apply_flag(Config& config, std::span<const std::string_view> arguments, std::size_t& at) {
    const std::string_view argument = arguments[at++];
    const auto equals = argument.find('=');
    const std::string_view flag = argument.substr(0, equals);
    const auto setting = std::ranges::find(settings(), flag, &Setting::flag);
    if (setting == settings().end()) {
        return std::format("unknown argument \"{}\"", argument);
    }
    if (equals != std::string_view::npos) {
        return apply(config, *setting, flag, argument.substr(equals + 1));
    }
    if (at == arguments.size()) {
        return std::format("{} needs a value", flag);
    }
    return apply(config, *setting, flag, arguments[at++]);
}

/// Returns the cgroup's CPU quota in whole CPUs; nothing without a quota. Inside a container its own cgroup is the
/// root.
std::optional<unsigned> quota() {
    std::string quota = "max";
    double period = 0;
    if (!(std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period)) {
        std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
        std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
    }
    const double allowed = std::strtod(quota.c_str(), nullptr);
    return allowed > 0 && period > 0 ? std::optional(static_cast<unsigned>(allowed / period)) : std::nullopt;
}

}  // namespace

std::expected<Config, std::string> Config::parse(std::span<const std::string_view> arguments,
                                                 const Environment& environment) {
    Config config;
    for (const auto& setting : settings()) {
        if (const char* value = environment(setting.variable.data())) {
            if (auto error = apply(config, setting, setting.variable, value)) {
                return std::unexpected(std::move(*error));
            }
        }
    }
    for (std::size_t at = 0; at < arguments.size();) {
        if (arguments[at] == "--version" || arguments[at] == "--help") {
            (arguments[at] == "--help" ? config.shows_help : config.shows_version) = true;
            ++at;
        } else if (auto error = apply_flag(config, arguments, at)) {
            return std::unexpected(std::move(*error));
        }
    }
    return config;
}

unsigned Config::workers() const {
    if (worker_threads > 0) {
        return worker_threads;
    }
    cpu_set_t set{};
    const int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return std::max(1u, std::min(static_cast<unsigned>(usable), quota().value_or(1024)));
}

std::string usage() {
    std::string text = "Speech-to-text gateway on uWebSockets. Flags win over variables of the environment.\n\n";
    for (const auto& setting : settings()) {
        std::format_to(std::back_inserter(text), "  {:<26} {:<24} {}\n", setting.flag(), setting.variable,
                       setting.help);
    }
    return text + "  --version                                           Print the version and end\n";
}

}  // namespace gateway
