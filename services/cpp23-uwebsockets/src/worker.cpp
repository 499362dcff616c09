#include "worker.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace gateway {
namespace {

/// Listen backlog. Thousands of clients may connect at once; the library's default is 512.
constexpr int listen_backlog = 8192;
/// Time limit for a session's last batch when the gateway stops, without the close handshake.
constexpr milliseconds drain_time{2900};
/// Maximum of spare buffers.
constexpr std::size_t max_buffers = 4096;

/// Capacity for the audio of one interval, and 8 more frames because ticks may be late.
std::size_t buffer_bytes(const Config& config) {
    return (static_cast<std::size_t>(config.flush_interval / milliseconds(20)) + 8) * frame_bytes;
}

/// Whether the comma-separated `list` contains `token`, in any case.
bool has_token(std::string_view list, std::string_view token) {
    while (!list.empty()) {
        const auto comma = std::min(list.find(','), list.size());
        std::string_view item = list.substr(0, comma);
        list.remove_prefix(std::min(comma + 1, list.size()));
        while (item.starts_with(' ') || item.starts_with('\t')) {
            item.remove_prefix(1);
        }
        while (item.ends_with(' ') || item.ends_with('\t')) {
            item.remove_suffix(1);
        }
        if (item.size() == token.size() && strncasecmp(item.data(), token.data(), token.size()) == 0) {
            return true;
        }
    }
    return false;
}

void require_upgrade(uWS::HttpResponse<false>* response, std::string_view reason) {
    response->writeStatus("426 Upgrade Required")
        ->writeHeader("Upgrade", "websocket")
        ->writeHeader("Sec-WebSocket-Version", "13")
        ->end(reason, true);
}

void refuse_method(uWS::HttpResponse<false>* response) {
    response->writeStatus("405 Method Not Allowed")->writeHeader("Allow", "GET")->end("only GET is allowed here", true);
}

}  // namespace

Worker::Worker(const Config& config, Books& books, PublishedCounts& published)
    : config_(config),
      books_(books),
      published_(published),
      loop_(uWS::Loop::get()),
      timer_(us_create_timer(loop(), 1, sizeof(Worker*))),
      inference_(loop(), config),
      wheel_(Clock::now()),
      random_(std::random_device{}()) {
    *static_cast<Worker**>(us_timer_ext(timer_)) = this;
    loop_->addPostHandler(this, [this](uWS::Loop*) { after_iteration(); });
    route();
}

Worker::~Worker() {
    loop_->removePostHandler(this);
    us_timer_close(timer_);
}

bool Worker::listen(std::uint16_t port) {
    app_.listen(config_.host, port, [this](us_listen_socket_t* listener) { listener_ = listener; });
    if (!listener_) {
        return false;
    }
    auto* socket = reinterpret_cast<us_socket_t*>(listener_);
    ::listen(us_poll_fd(reinterpret_cast<us_poll_t*>(socket)), listen_backlog);
    return true;
}

void Worker::run() { loop_->run(); }

void Worker::stop() {
    loop_->defer([this] { drain(); });
}

Schedule Worker::schedule(TimePoint start) {
    std::uniform_int_distribution<std::int64_t> jitter(0, Clock::duration(config_.flush_phase_jitter).count());
    return {start + Clock::duration(jitter(random_)) + config_.flush_interval, config_.flush_interval};
}

std::string Worker::take_buffer() {
    if (buffers_.empty()) {
        std::string buffer;
        buffer.reserve(buffer_bytes(config_));
        return buffer;
    }
    std::string buffer = std::move(buffers_.back());
    buffers_.pop_back();
    return buffer;
}

void Worker::return_buffer(std::string buffer) {
    // Buffers that grew in a stall are not kept.
    if (buffers_.size() < max_buffers && buffer.capacity() <= 2 * buffer_bytes(config_)) {
        buffer.clear();
        buffers_.push_back(std::move(buffer));
    }
}

void Worker::route() {
    uWS::App::WebSocketBehavior<PerSocket> behavior;
    behavior.compression = uWS::DISABLED;
    behavior.maxPayloadLength = max_message_bytes;
    behavior.idleTimeout = 0;
    behavior.sendPingsAutomatically = false;
    // Sessions check the waiting bytes themselves; the library would drop messages silently.
    behavior.maxBackpressure = 0;
    behavior.upgrade = [this](auto* response, auto* request, auto* context) { upgrade(response, request, context); };
    behavior.open = [this](Socket* socket) { open(socket); };
    behavior.message = [](Socket* socket, std::string_view message, uWS::OpCode code) {
        socket->getUserData()->session->on_message(message, code);
    };
    behavior.ping = [](Socket* socket, std::string_view payload) { socket->getUserData()->session->on_ping(payload); };
    behavior.drain = [](Socket* socket) { socket->getUserData()->session->on_drain(); };
    behavior.close = [](Socket* socket, int code, std::string_view reason) {
        socket->getUserData()->session->on_close(code, reason);
    };
    app_.ws<PerSocket>("/ws/stt", std::move(behavior));
    // Without a key of 24 characters, the library handles a GET as an ordinary request.
    app_.any("/ws/stt", [this](auto* response, auto* request) {
        if (request->getCaseSensitiveMethod() != "GET") {
            return refuse_method(response);
        }
        counts_.reject(RejectReason::handshake);
        require_upgrade(response, "this is a WebSocket: Sec-WebSocket-Key must be 16 bytes in base64");
    });
    app_.get("/health", [](auto* response, auto*) {
        response->writeHeader("Content-Type", "application/json")->end(R"({"ok":true,"runtime":"cpp23-uwebsockets"})");
    });
    app_.any("/health", [](auto* response, auto*) { refuse_method(response); });
}

void Worker::upgrade(uWS::HttpResponse<false>* response, uWS::HttpRequest* request, us_socket_context_t* context) {
    if (!has_token(request->getHeader("upgrade"), "websocket") ||
        !has_token(request->getHeader("connection"), "upgrade")) {
        counts_.reject(RejectReason::handshake);
        return require_upgrade(response, "Upgrade: websocket and Connection: upgrade are needed");
    }
    if (request->getHeader("sec-websocket-version") != "13") {
        counts_.reject(RejectReason::handshake);
        return require_upgrade(response, "Sec-WebSocket-Version must be 13");
    }
    const bool is_full = config_.max_connections > 0 && books_.connections >= config_.max_connections;
    if (is_draining_ || is_full) {
        counts_.reject(is_draining_ ? RejectReason::draining : RejectReason::full);
        response->writeStatus("503 Service Unavailable")->end(is_draining_ ? "draining" : "full", true);
        return;
    }
    ++books_.connections;
    // Accepts neither a subprotocol nor an extension.
    response->upgrade<PerSocket>({}, request->getHeader("sec-websocket-key"), {}, {}, context);
}

void Worker::open(Socket* socket) {
    ++counts_.accepted;
    ++counts_.open;
    auto session = std::make_unique<Session>(*this, *socket);
    socket->getUserData()->session = session.get();
    wheel_.add(std::move(session), Clock::now() + visit_interval);
    set_timer(static_cast<int>(turn_interval.count()));
}

void Worker::turn() {
    inference_.expire(Clock::now());
    wheel_.turn(Clock::now(), [](Session& session) { return session.visit(); });
    if (wheel_.is_empty()) {
        set_timer(0);
    }
}

void Worker::after_iteration() {
    inference_.flush();
    for (Session* const session : std::exchange(shutting_down_, {})) {
        session->shut_down();
    }
    published_.publish(counts_);
    if (is_draining_ && !std::exchange(has_ended_, wheel_.is_empty()) && has_ended_) {
        // The loop ends when it has no sockets left.
        inference_.close();
        app_.close();
    }
}

void Worker::drain() {
    is_draining_ = true;
    if (listener_) {
        us_listen_socket_close(0, std::exchange(listener_, nullptr));
    }
    const TimePoint deadline = Clock::now() + drain_time;
    wheel_.for_each([deadline](Session& session) { session.drain(deadline); });
}

void Worker::set_timer(int milliseconds) {
    const bool is_needed = milliseconds > 0;
    if (is_needed != std::exchange(is_timer_running_, is_needed)) {
        us_timer_set(
            timer_, [](us_timer_t* timer) { (*static_cast<Worker**>(us_timer_ext(timer)))->turn(); }, milliseconds,
            milliseconds);
    }
}

}  // namespace gateway
