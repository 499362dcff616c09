// One HTTP/2 connection to the inference, as nghttp2 sees it: requests on one side, bytes on the other. No sockets
// here.
#pragma once

#include <nghttp2/nghttp2.h>

#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocol.hpp"

namespace gateway {

/// Largest response body in bytes; a longer one is a parse error.
inline constexpr std::size_t max_response_bytes = 64 << 10;

/// A request, and the part of its response that has arrived.
class Request {
  public:
    virtual ~Request() = default;

    /// Called once when the request has ended, with the body of a successful response or the failure. May destroy
    /// the request.
    virtual void on_finished(std::expected<std::string_view, Failure> response) = 0;

    std::string audio;

    /// Whether the inference refused the request without processing it, so that it may be sent again.
    bool was_refused = false;

  private:
    friend class Http2;
    friend struct Callbacks;

    std::int32_t stream_ = 0;
    /// Index in the connection's list of requests.
    std::size_t index_ = 0;
    std::size_t sent_bytes_ = 0;
    int status_ = 0;
    std::string body_;
    bool was_reset_ = false;
};

/// The client's side of a connection. It must not be destroyed from within `Request::on_finished`.
class Http2 {
  public:
    /// `authority` is host:port and must outlive this object.
    Http2(std::string_view authority, std::uint32_t cpu_passes);

    /// Whether another request can be sent.
    bool accepts_requests() const;

    void submit(Request& request);

    /// Cancels `request`: its `on_finished` is not called any more.
    void cancel(Request& request);

    /// Processes bytes that were read. Returns false if the peer violates HTTP/2 or the connection is complete.
    bool receive(std::string_view bytes);

    /// Appends all bytes that can be sent now to `out`.
    void collect(std::string& out);

    /// Queues an HTTP/2 PING, to check that the peer is alive.
    void ping();

    /// Finishes all requests with a failure, because the connection is closed.
    void fail(std::string_view reason);

  private:
    friend struct Callbacks;

    void finish(Request& request, std::expected<std::string_view, Failure> response);
    void remove(Request& request);

    struct Delete {
        void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
    };

    std::string_view authority_;
    std::string cpu_passes_;
    std::vector<Request*> requests_;
    /// Whether the peer has violated HTTP/2.
    bool has_violation_ = false;
    // The last member, because its deletion may call back into this object.
    std::unique_ptr<nghttp2_session, Delete> session_;
};

}  // namespace gateway
