#include "inference.hpp"

#include <algorithm>
#include <format>

namespace gateway {
namespace {

/// Time limit for opening a connection.
constexpr milliseconds connect_timeout{1000};
/// A connection on which a request timed out is sent a PING. If nothing arrives within this time, it is closed.
constexpr milliseconds ping_timeout{2000};

}  // namespace

/// One TCP connection to the inference.
struct Connection {
    Connection(Inference& inference, std::size_t number, const Config& config)
        : owner(inference), index(number), http2(config.inference_authority, config.cpu_passes) {}

    Inference& owner;
    std::size_t index;
    Http2 http2;
    /// Null if the socket couldn't be created.
    us_socket_t* socket = nullptr;
    bool is_open = false;
    TimePoint started_at = Clock::now();
    /// Bytes that the socket hasn't taken yet.
    std::string unsent;
    /// When a PING was sent; absent if bytes have arrived since.
    std::optional<TimePoint> pinged_at;
};

Call::~Call() {
    if (inference_) {
        connection_->http2.cancel(*this);
        inference_->remove(*this);
    }
}

void Call::on_finished(std::expected<std::string_view, Failure> response) {
    if (was_refused && !was_retried_) {
        was_retried_ = true;
        inference_->send(*this);
        return;
    }
    inference_->remove(*this);
    on_response(std::move(response));
}

Inference::Inference(us_loop_t* loop, const Config& config)
    : context_(us_create_socket_context(0, loop, sizeof(void*), {})),
      config_(config),
      current_(config.inference_http_clients) {
    set_callbacks();
}

Inference::~Inference() { us_socket_context_free(0, context_); }

void Inference::begin(Call& call, std::size_t index, TimePoint now) {
    call.inference_ = this;
    call.connection_index_ = index;
    call.deadline_ = now + config_.inference_timeout;
    call.position_ = calls_.insert(calls_.end(), &call);
    send(call);
}

void Inference::send(Call& call) {
    call.connection_ = &connection_for(call.connection_index_);
    call.connection_->http2.submit(call);
}

void Inference::remove(Call& call) {
    calls_.erase(call.position_);
    call.inference_ = nullptr;
}

Connection& Inference::connection_for(std::size_t index) {
    if (Connection* const connection = current_[index]; connection && connection->http2.accepts_requests()) {
        return *connection;
    }
    Connection& connection = *connections_.emplace_back(std::make_unique<Connection>(*this, index, config_));
    current_[index] = &connection;
    // A host name is resolved here, which blocks the loop; an address needs no resolution.
    connection.socket = us_socket_context_connect(0, context_, config_.inference_host.c_str(), config_.inference_port,
                                                  nullptr, 0, sizeof(Connection*));
    if (connection.socket) {
        *static_cast<Connection**>(us_socket_ext(0, connection.socket)) = &connection;
    }
    return connection;
}

void Inference::expire(TimePoint now) {
    while (!calls_.empty() && calls_.front()->deadline_ <= now) {
        Call& call = *calls_.front();
        Connection& connection = *call.connection_;
        connection.http2.cancel(call);
        if (!connection.pinged_at && connection.is_open) {
            connection.http2.ping();
            connection.pinged_at = now;
        }
        remove(call);
        call.on_response(std::unexpected(
            Failure{Kind::timeout, {}, std::format("no answer within {} ms", config_.inference_timeout.count())}));
    }
    for (auto at = connections_.begin(); at != connections_.end();) {
        Connection& connection = **at++;
        if (!connection.socket) {
            drop(connection, "no connection could be made");
        } else if (!connection.is_open && now - connection.started_at > connect_timeout) {
            us_socket_close_connecting(0, connection.socket);
            drop(connection, "it didn't open in time");
        } else if (connection.pinged_at && now - *connection.pinged_at > ping_timeout) {
            us_socket_close(0, connection.socket, 0, nullptr);
        }
    }
}

void Inference::flush() {
    for (const auto& connection : connections_) {
        write(*connection);
    }
}

void Inference::write(Connection& connection) {
    if (!connection.is_open) {
        return;
    }
    // Unsent bytes are written before more are collected, which limits their number.
    if (connection.unsent.empty()) {
        connection.http2.collect(connection.unsent);
    }
    if (!connection.unsent.empty()) {
        const int length = static_cast<int>(connection.unsent.size());
        const int written = us_socket_write(0, connection.socket, connection.unsent.data(), length, 0);
        connection.unsent.erase(0, static_cast<std::size_t>(written));
    }
}

void Inference::drop(Connection& connection, std::string_view reason) {
    if (current_[connection.index] == &connection) {
        current_[connection.index] = nullptr;
    }
    const auto at = std::ranges::find(connections_, &connection, &std::unique_ptr<Connection>::get);
    const std::unique_ptr<Connection> closed = std::move(*at);
    connections_.erase(at);
    closed->http2.fail(reason);
}

void Inference::set_callbacks() {
    static constexpr auto connection_of = [](us_socket_t* socket) -> Connection& {
        return **static_cast<Connection**>(us_socket_ext(0, socket));
    };
    us_socket_context_on_open(0, context_, [](us_socket_t* socket, int, char*, int) {
        connection_of(socket).is_open = true;
        return socket;
    });
    us_socket_context_on_data(0, context_, [](us_socket_t* socket, char* data, int length) {
        Connection& connection = connection_of(socket);
        connection.pinged_at.reset();
        if (!connection.http2.receive({data, static_cast<std::size_t>(length)})) {
            write(connection);
            return us_socket_close(0, socket, 0, nullptr);
        }
        return socket;
    });
    us_socket_context_on_writable(0, context_, [](us_socket_t* socket) {
        write(connection_of(socket));
        return socket;
    });
    us_socket_context_on_end(0, context_, [](us_socket_t* socket) { return us_socket_close(0, socket, 0, nullptr); });
    us_socket_context_on_close(0, context_, [](us_socket_t* socket, int, void*) {
        connection_of(socket).owner.drop(connection_of(socket), "it was closed");
        return socket;
    });
    us_socket_context_on_connect_error(0, context_, [](us_socket_t* socket, int) {
        connection_of(socket).owner.drop(connection_of(socket), "it was refused");
        return socket;
    });
}

}  // namespace gateway
