// One HTTP/2 connection to the inference as bytes: nghttp2 between requests and what a socket takes and gives. No
// socket here.
#pragma once

#include <nghttp2/nghttp2.h>

#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocol.hpp"

namespace gateway {

/// Longest answer that is read; what is longer is no answer.
inline constexpr std::size_t max_answer_bytes = 64 << 10;

/// A request and, piece by piece, its answer.
class Request {
  public:
    virtual ~Request() = default;

    /// It has ended: the body of a success, or what went wrong. Called once; may destroy the request.
    virtual void finished(std::expected<std::string_view, Failure> answer) = 0;

    std::string audio;

    /// The inference says that it hasn't looked at it: it may be sent again.
    bool was_refused = false;

  private:
    friend class Http2;
    friend struct Callbacks;

    std::int32_t stream_ = 0;
    /// Where it is in the list of its connection.
    std::size_t place_ = 0;
    std::size_t sent_bytes_ = 0;
    int status_ = 0;
    std::string body_;
    bool was_reset_ = false;
};

/// A client's side of a connection. It must not be destroyed from within `Request::finished`.
class Http2 {
  public:
    /// `authority` is host:port, and must live as long as this.
    Http2(std::string_view authority, std::uint32_t cpu_passes);

    /// Whether a further request can be sent.
    bool accepts() const;

    void submit(Request& request);

    /// Gives `request` up: it isn't finished any more.
    void cancel(Request& request);

    /// Takes what was read. False when the peer speaks no HTTP/2, or when all is said.
    bool receive(std::string_view bytes);

    /// Appends all that can be sent now to `out`.
    void collect(std::string& out);

    /// Asks whether the peer is alive.
    void ping();

    /// Finishes all requests as failed, because the connection is gone.
    void fail(std::string_view why);

  private:
    friend struct Callbacks;

    void finish(Request& request, std::expected<std::string_view, Failure> answer);
    void forget(Request& request);

    struct Delete {
        void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
    };

    std::string_view authority_;
    std::string cpu_passes_;
    std::vector<Request*> requests_;
    /// The peer broke the rules of HTTP/2.
    bool is_broken_ = false;
    // Last: deleting it may call back.
    std::unique_ptr<nghttp2_session, Delete> session_;
};

}  // namespace gateway
