#include "http2.hpp"

#include <array>
#include <charconv>
#include <cstring>
#include <format>
#include <stdexcept>

namespace gateway {

/// The callbacks of nghttp2. `user` is the connection; a stream's user data is its request, or null once it has
/// ended.
struct Callbacks {
    static Http2& connection(void* user) { return *static_cast<Http2*>(user); }

    static Request* request_of(nghttp2_session* session, std::int32_t stream) {
        return static_cast<Request*>(nghttp2_session_get_stream_user_data(session, stream));
    }

    static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const std::uint8_t* name,
                         std::size_t name_length, const std::uint8_t* value, std::size_t value_length, std::uint8_t,
                         void*) {
        constexpr std::string_view status = ":status";
        Request* const pending = request_of(session, frame->hd.stream_id);
        if (pending && name_length == status.size() && std::memcmp(name, status.data(), name_length) == 0) {
            const auto* text = reinterpret_cast<const char*>(value);
            std::from_chars(text, text + value_length, pending->status_);
        }
        return 0;
    }

    static int on_data(nghttp2_session* session, std::uint8_t, std::int32_t stream, const std::uint8_t* data,
                       std::size_t length, void* user) {
        Request* const pending = request_of(session, stream);
        if (!pending) {
            return 0;
        }
        if (pending->body_.size() + length > max_response_bytes) {
            auto failure = failure_of(pending->status_);
            const auto message = std::format("the inference's answer is longer than {} bytes", max_response_bytes);
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
            connection(user).finish(
                *pending,
                std::unexpected(failure ? std::move(*failure) : Failure{Kind::parse_error, pending->status_, message}));
            return 0;
        }
        pending->body_.append(reinterpret_cast<const char*>(data), length);
        return 0;
    }

    static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
        Request* const pending = request_of(session, frame->hd.stream_id);
        if (!pending) {
            return 0;
        }
        if (frame->hd.type == NGHTTP2_RST_STREAM) {
            pending->was_reset_ = true;
        } else if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
            if (auto failure = failure_of(pending->status_)) {
                connection(user).finish(*pending, std::unexpected(std::move(*failure)));
            } else {
                connection(user).finish(*pending, pending->body_);
            }
        }
        return 0;
    }

    static int on_close(nghttp2_session* session, std::int32_t stream, std::uint32_t code, void* user) {
        Request* const pending = request_of(session, stream);
        if (!pending) {
            return 0;
        }
        // Either the peer reset the stream or is going away, or nghttp2 reset it because the response was not valid
        // HTTP.
        pending->was_refused = code == NGHTTP2_REFUSED_STREAM;
        const bool by_peer = pending->was_reset_ || pending->was_refused;
        const auto message = std::format("the request to the inference was reset: {}", nghttp2_http2_strerror(code));
        const auto status = pending->status_ ? std::optional(pending->status_) : std::nullopt;
        connection(user).finish(*pending, std::unexpected(by_peer ? Failure{Kind::connection_reset, {}, message}
                                                                  : Failure{Kind::parse_error, status, message}));
        return 0;
    }

    static int on_sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
        if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
            connection(user).has_violation_ = true;
        }
        return 0;
    }

    static ssize_t read(nghttp2_session* session, std::int32_t stream, std::uint8_t* destination, std::size_t length,
                        std::uint32_t* flags, nghttp2_data_source*, void*) {
        Request* const pending = request_of(session, stream);
        if (!pending) {
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
        const std::size_t bytes =
            pending->audio.copy(reinterpret_cast<char*>(destination), length, pending->sent_bytes_);
        pending->sent_bytes_ += bytes;
        if (pending->sent_bytes_ == pending->audio.size()) {
            *flags |= NGHTTP2_DATA_FLAG_EOF;
        }
        return static_cast<ssize_t>(bytes);
    }

    static nghttp2_session* session(Http2* connection) {
        nghttp2_session_callbacks* callbacks = nullptr;
        nghttp2_session* session = nullptr;
        if (nghttp2_session_callbacks_new(&callbacks) != 0) {
            throw std::bad_alloc();
        }
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
        const int failed = nghttp2_session_client_new(&session, callbacks, connection);
        nghttp2_session_callbacks_del(callbacks);
        if (failed) {
            throw std::bad_alloc();
        }
        return session;
    }
};

namespace {

nghttp2_nv header(std::string_view name, std::string_view value) {
    // Names are constants; nghttp2 copies the values.
    return {reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
            reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
            NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

}  // namespace

Http2::Http2(std::string_view authority, std::uint32_t cpu_passes)
    : authority_(authority), cpu_passes_(std::to_string(cpu_passes)), session_(Callbacks::session(this)) {
    const nghttp2_settings_entry no_push{NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    nghttp2_submit_settings(session_.get(), NGHTTP2_FLAG_NONE, &no_push, 1);
}

bool Http2::accepts_requests() const {
    return !has_violation_ && nghttp2_session_check_request_allowed(session_.get()) != 0;
}

void Http2::submit(Request& request) {
    request.status_ = 0;
    request.sent_bytes_ = 0;
    request.was_refused = request.was_reset_ = false;
    request.body_.clear();
    const std::string length = std::to_string(request.audio.size());
    const std::array headers = {header(":method", "POST"),           header(":scheme", "http"),
                                header(":authority", authority_),    header(":path", "/infer"),
                                header("x-cpu-passes", cpu_passes_), header("content-type", "application/octet-stream"),
                                header("content-length", length)};
    const nghttp2_data_provider body{{.ptr = nullptr}, Callbacks::read};
    request.stream_ = nghttp2_submit_request(session_.get(), nullptr, headers.data(), headers.size(), &body, &request);
    if (request.stream_ < 0) {
        throw std::runtime_error(nghttp2_strerror(request.stream_));
    }
    request.index_ = requests_.size();
    requests_.push_back(&request);
}

void Http2::cancel(Request& request) {
    remove(request);
    nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, request.stream_, NGHTTP2_CANCEL);
}

bool Http2::receive(std::string_view bytes) {
    const auto consumed =
        nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    if (consumed < 0) {
        has_violation_ = true;
    }
    return !has_violation_ && (nghttp2_session_want_read(session_.get()) || nghttp2_session_want_write(session_.get()));
}

void Http2::collect(std::string& out) {
    for (;;) {
        const std::uint8_t* bytes = nullptr;
        const auto length = nghttp2_session_mem_send(session_.get(), &bytes);
        if (length <= 0) {
            return;
        }
        out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
    }
}

void Http2::ping() { nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr); }

void Http2::fail(std::string_view reason) {
    const Kind kind = has_violation_ ? Kind::parse_error : Kind::connection_reset;
    const std::string message = has_violation_ ? "the inference doesn't speak HTTP/2"
                                               : std::format("the connection to the inference failed: {}", reason);
    while (!requests_.empty()) {
        finish(*requests_.back(), std::unexpected(Failure{kind, {}, message}));
    }
}

void Http2::finish(Request& request, std::expected<std::string_view, Failure> response) {
    remove(request);
    request.on_finished(std::move(response));
}

void Http2::remove(Request& request) {
    nghttp2_session_set_stream_user_data(session_.get(), request.stream_, nullptr);
    requests_[request.index_] = requests_.back();
    requests_[request.index_]->index_ = request.index_;
    requests_.pop_back();
}

}  // namespace gateway
