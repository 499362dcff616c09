#include "metrics.hpp"

#include <App.h>
#include <unistd.h>

#include <format>
#include <fstream>
#include <future>
#include <iterator>
#include <span>
#include <thread>

namespace gateway {
namespace {

/// Formats counters by reason as a JSON object, without those that are 0.
template <typename Name>
std::string reasons(std::span<const std::uint64_t> counts, Name name) {
    std::string out = "{";
    for (std::size_t reason = 0; reason < counts.size(); ++reason) {
        if (counts[reason] > 0) {
            std::format_to(std::back_inserter(out), R"({}"{}":{})", out.size() > 1 ? "," : "", name(reason),
                           counts[reason]);
        }
    }
    return out + "}";
}

std::string_view close_reason_name(std::size_t end) { return close_reason_names[end]; }
std::string_view reject_name(std::size_t reject) { return reject_names[reject]; }
std::string_view kind_name(std::size_t kind) { return name(static_cast<Kind>(kind)); }

/// Builds Prometheus text, one metric family after the other.
class Exposition {
  public:
    void counter(std::string_view name, std::string_view help, std::uint64_t value) {
        head(name, help, "counter");
        line("{} {}\n", name, value);
    }

    void gauge(std::string_view name, std::string_view help, std::uint64_t value) {
        head(name, help, "gauge");
        line("{} {}\n", name, value);
    }

    /// Appends one value per reason, also those that are 0, because a series that appears later has no increase.
    template <typename Name>
    void counters(std::string_view name, std::string_view help, std::string_view label,
                  std::span<const std::uint64_t> counts, Name reason, std::size_t first = 0) {
        head(name, help, "counter");
        for (std::size_t at = first; at < counts.size(); ++at) {
            line("{}{{{}=\"{}\"}} {}\n", name, label, reason(at), counts[at]);
        }
    }

    void histogram(std::string_view name, std::string_view help, const Lateness& lateness) {
        head(name, help, "histogram");
        std::uint64_t count = 0;
        for (std::size_t bucket = 0; bucket < lateness.buckets.size(); ++bucket) {
            count += lateness.buckets[bucket];
            const bool is_last = bucket == Lateness::bounds.size();
            line("{}_bucket{{le=\"{}\"}} {}\n", name,
                 is_last ? std::string("+Inf") : std::format("{}", Lateness::bounds[bucket]), count);
        }
        line("{}_sum {}\n", name, std::chrono::duration<double>(lateness.sum).count());
        line("{}_count {}\n", name, count);
    }

    std::string text;

  private:
    void head(std::string_view name, std::string_view help, std::string_view type) {
        line("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    }

    template <typename... Values>
    void line(std::format_string<Values&...> format, Values&&... values) {
        std::format_to(std::back_inserter(text), format, values...);
    }
};

void put_messages(Exposition& out, const Counts& counts) {
    out.counter("service_messages_received_total", "Complete data messages taken from sockets", counts.received);
    out.counter("service_messages_consumed_total", "Messages that the service answered itself", counts.consumed);
    out.counter("service_messages_delivered_total", "Messages handed to the application", counts.delivered);
    out.counters("service_messages_dropped_total", "Messages not handed over", "reason", counts.dropped, drop_name);
    out.gauge("service_messages_queued", "Messages that wait for the application", counts.waiting + counts.in_flight);
    out.counter("service_messages_malformed_total", "Text passed on that was no JSON object", 0);
    out.counter("service_messages_sent_total", "Data messages handed to sockets", counts.sent);
    out.counters("service_messages_send_dropped_total", "Messages not sent", "reason", {}, drop_name);
}

void put_connections(Exposition& out, const Counts& counts) {
    out.counter("service_connections_accepted_total", "Connections upgraded and registered", counts.accepted);
    out.gauge("service_connections_open", "Connections open now", counts.open);
    out.counters("service_connections_closed_total", "Connections that ended", "reason", counts.closed,
                 close_reason_name);
    out.counters("service_connections_rejected_total", "Connections refused", "reason", counts.rejected, reject_name);
    out.counter("service_bytes_received_total", "WebSocket bytes read from sockets", counts.bytes_received);
    out.counter("service_bytes_sent_total", "WebSocket bytes written to sockets", counts.bytes_sent);
}

void put_requests(Exposition& out, const Counts& counts) {
    out.counter("service_inference_requests_total", "Requests begun", counts.requests);
    out.counter("service_inference_answered_total", "Requests whose answer became a partial", counts.answered);
    // Skips the first kind, the overflow, with which no request fails.
    out.counters("service_inference_failed_total", "Requests whose frames got an error", "kind", counts.failed,
                 kind_name, 1);
    out.counter("service_inference_abandoned_total", "Requests whose connection ended first", counts.abandoned);
    out.gauge("service_inference_in_flight", "Requests in flight now", counts.requests_in_flight);
    out.gauge("service_buffered_bytes", "Audio held, waiting or in flight", counts.buffered_bytes());
    out.gauge("service_inference_in_flight_per_connection_max",
              "The most requests that were ever in flight for one connection", counts.in_flight_per_connection_max);
    const std::array ticks = {counts.ticks_flushed, counts.ticks_skipped, counts.ticks_empty};
    constexpr std::array<std::string_view, 3> outcomes = {"flushed", "skipped", "empty"};
    out.counters("service_flush_ticks_total", "Flush ticks by what they found", "outcome", ticks,
                 [&](std::size_t at) { return outcomes[at]; });
    out.histogram("service_flush_lateness_seconds", "How late flush ticks ran", counts.lateness);
}

std::optional<std::uint64_t> resident_bytes() {
    std::uint64_t size = 0;
    std::uint64_t resident = 0;
    if (std::ifstream("/proc/self/statm") >> size >> resident) {
        return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    }
    return std::nullopt;
}

void route(uWS::App& app, const Books& books) {
    const TimePoint began = Clock::now();
    app.get("/healthz", [](auto* response, auto*) { response->end("ok\n"); });
    app.get("/readyz", [&books](auto* response, auto*) {
        if (books.accepting) {
            response->end("ready\n");
        } else {
            response->writeStatus("503 Service Unavailable")->end("stopping\n");
        }
    });
    app.get("/stats", [&books, began](auto* response, auto*) {
        const double uptime = std::chrono::duration<double>(Clock::now() - began).count();
        response->writeHeader("Content-Type", "application/json")->end(stats_json(books.read(), uptime));
    });
    app.get("/metrics", [&books](auto* response, auto*) {
        response->writeHeader("Content-Type", "text/plain; version=0.0.4")
            ->end(prometheus(books.read(), resident_bytes()));
    });
}

}  // namespace

std::string stats_json(const Counts& counts, double uptime_seconds) {
    return std::format(R"({{"service":"cpp23-uwebsockets","version":"{}","uptime_seconds":{:.6f},)"
                       R"("connections":{{"accepted":{},"open":{},"closed":{},"rejected":{}}},)",
                       VERSION, uptime_seconds, counts.accepted, counts.open, reasons(counts.closed, close_reason_name),
                       reasons(counts.rejected, reject_name)) +
           std::format(
               R"("messages":{{"received":{},"consumed":{},"delivered":{},"dropped":{},"queued":{},"malformed":0,)"
               R"("sent":{},"send_dropped":{{}}}},"bytes":{{"received":{},"sent":{}}},"application":null,)",
               counts.received, counts.consumed, counts.delivered, reasons(counts.dropped, drop_name),
               counts.waiting + counts.in_flight, counts.sent, counts.bytes_received, counts.bytes_sent) +
           std::format(R"("inference":{{"requests":{},"answered":{},"failed":{},"abandoned":{},"in_flight":{},)"
                       R"("ticks_skipped":{},"buffered_bytes":{}}}}})",
                       counts.requests, counts.answered, reasons(counts.failed, kind_name), counts.abandoned,
                       counts.requests_in_flight, counts.ticks_skipped, counts.buffered_bytes());
}

std::string prometheus(const Counts& counts, std::optional<std::uint64_t> resident_bytes) {
    Exposition out;
    put_messages(out, counts);
    put_connections(out, counts);
    put_requests(out, counts);
    if (resident_bytes) {
        out.gauge("service_process_resident_bytes", "Memory of the process", *resident_bytes);
    }
    return std::move(out.text);
}

std::optional<std::uint16_t> serve_metrics(const std::string& host, std::uint16_t port, const Books& books) {
    std::promise<std::optional<std::uint16_t>> bound;
    auto result = bound.get_future();
    std::thread([&host, port, &books, bound = std::move(bound)]() mutable {
        uWS::App app;
        route(app, books);
        us_listen_socket_t* listener = nullptr;
        app.listen(host, port, LIBUS_LISTEN_EXCLUSIVE_PORT,
                   [&listener](us_listen_socket_t* socket) { listener = socket; });
        if (!listener) {
            bound.set_value(std::nullopt);
            return;
        }
        bound.set_value(static_cast<std::uint16_t>(us_socket_local_port(0, reinterpret_cast<us_socket_t*>(listener))));
        app.run();
    }).detach();
    return result.get();
}

}  // namespace gateway
