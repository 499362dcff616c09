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
struct Link {
    Link(Inference& inference, std::size_t number, const Config& config)
        : owner(inference), lane(number), http2(config.inference_authority, config.cpu_passes) {}

    Inference& owner;
    std::size_t lane;
    Http2 http2;
    /// Null if the socket couldn't be created.
    us_socket_t* socket = nullptr;
    bool is_open = false;
    TimePoint began = Clock::now();
    /// Bytes that the socket hasn't taken yet.
    std::string unsent;
    /// When a PING was sent; absent if bytes have arrived since.
    std::optional<TimePoint> pinged;
};

Call::~Call() {
    if (inference_) {
        link_->http2.cancel(*this);
        inference_->forget(*this);
    }
}

void Call::finished(std::expected<std::string_view, Failure> answer) {
    if (was_refused && !was_repeated_) {
        was_repeated_ = true;
        inference_->send(*this);
        return;
    }
    inference_->forget(*this);
    landed(std::move(answer));
}

Inference::Inference(us_loop_t* loop, const Config& config)
    : context_(us_create_socket_context(0, loop, sizeof(void*), {})),
      config_(config),
      current_(config.inference_http_clients) {
    listen();
}

Inference::~Inference() { us_socket_context_free(0, context_); }

void Inference::begin(Call& call, std::size_t lane, TimePoint now) {
    call.inference_ = this;
    call.lane_ = lane;
    call.deadline_ = now + config_.inference_timeout;
    call.place_ = calls_.insert(calls_.end(), &call);
    send(call);
}

void Inference::send(Call& call) {
    call.link_ = &link_of(call.lane_);
    call.link_->http2.submit(call);
}

void Inference::forget(Call& call) {
    calls_.erase(call.place_);
    call.inference_ = nullptr;
}

Link& Inference::link_of(std::size_t lane) {
    if (Link* const link = current_[lane]; link && link->http2.accepts()) {
        return *link;
    }
    Link& link = *links_.emplace_back(std::make_unique<Link>(*this, lane, config_));
    current_[lane] = &link;
    // A host name is resolved here, which blocks the loop; an address needs no resolution.
    link.socket = us_socket_context_connect(0, context_, config_.inference_host.c_str(), config_.inference_port,
                                            nullptr, 0, sizeof(Link*));
    if (link.socket) {
        *static_cast<Link**>(us_socket_ext(0, link.socket)) = &link;
    }
    return link;
}

void Inference::expire(TimePoint now) {
    while (!calls_.empty() && calls_.front()->deadline_ <= now) {
        Call& call = *calls_.front();
        Link& link = *call.link_;
        link.http2.cancel(call);
        if (!link.pinged && link.is_open) {
            link.http2.ping();
            link.pinged = now;
        }
        forget(call);
        call.landed(std::unexpected(
            Failure{Kind::timeout, {}, std::format("no answer within {} ms", config_.inference_timeout.count())}));
    }
    for (auto at = links_.begin(); at != links_.end();) {
        Link& link = **at++;
        if (!link.socket) {
            drop(link, "no connection could be made");
        } else if (!link.is_open && now - link.began > connect_timeout) {
            us_socket_close_connecting(0, link.socket);
            drop(link, "it didn't open in time");
        } else if (link.pinged && now - *link.pinged > ping_timeout) {
            us_socket_close(0, link.socket, 0, nullptr);
        }
    }
}

void Inference::flush() {
    for (const auto& link : links_) {
        write(*link);
    }
}

void Inference::write(Link& link) {
    if (!link.is_open) {
        return;
    }
    // Unsent bytes are written before more are collected, which limits their number.
    if (link.unsent.empty()) {
        link.http2.collect(link.unsent);
    }
    if (!link.unsent.empty()) {
        const int length = static_cast<int>(link.unsent.size());
        const int written = us_socket_write(0, link.socket, link.unsent.data(), length, 0);
        link.unsent.erase(0, static_cast<std::size_t>(written));
    }
}

void Inference::drop(Link& link, std::string_view why) {
    if (current_[link.lane] == &link) {
        current_[link.lane] = nullptr;
    }
    const auto at = std::ranges::find(links_, &link, &std::unique_ptr<Link>::get);
    const std::unique_ptr<Link> last = std::move(*at);
    links_.erase(at);
    last->http2.fail(why);
}

void Inference::listen() {
    static constexpr auto link = [](us_socket_t* socket) -> Link& {
        return **static_cast<Link**>(us_socket_ext(0, socket));
    };
    us_socket_context_on_open(0, context_, [](us_socket_t* socket, int, char*, int) {
        link(socket).is_open = true;
        return socket;
    });
    us_socket_context_on_data(0, context_, [](us_socket_t* socket, char* data, int length) {
        Link& from = link(socket);
        from.pinged.reset();
        if (!from.http2.receive({data, static_cast<std::size_t>(length)})) {
            write(from);
            return us_socket_close(0, socket, 0, nullptr);
        }
        return socket;
    });
    us_socket_context_on_writable(0, context_, [](us_socket_t* socket) {
        write(link(socket));
        return socket;
    });
    us_socket_context_on_end(0, context_, [](us_socket_t* socket) { return us_socket_close(0, socket, 0, nullptr); });
    us_socket_context_on_close(0, context_, [](us_socket_t* socket, int, void*) {
        link(socket).owner.drop(link(socket), "it was closed");
        return socket;
    });
    us_socket_context_on_connect_error(0, context_, [](us_socket_t* socket, int) {
        link(socket).owner.drop(link(socket), "it was refused");
        return socket;
    });
}

}  // namespace gateway
