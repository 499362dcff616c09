// Tests the HTTP/2 client against nghttp2's own server side, in memory.
#include "http2.hpp"

#include <doctest/doctest.h>

#include <map>
#include <optional>

using namespace gateway;

namespace {

/// A request that records how it ended.
struct Probe : Request {
    explicit Probe(std::string bytes) { audio = std::move(bytes); }
    void on_finished(std::expected<std::string_view, Failure> respond) override {
        CHECK_FALSE(ended);
        ended = respond.transform([](std::string_view body) { return std::string(body); });
    }
    std::optional<std::expected<std::string, Failure>> ended;
};

/// A server that records requests and responds when the test calls for it.
class Server {
  public:
    Server() {
        nghttp2_session_callbacks* callbacks = nullptr;
        nghttp2_session_callbacks_new(&callbacks);
        nghttp2_session_callbacks_set_on_header_callback(
            callbacks,
            [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_length,
               const std::uint8_t* value, std::size_t value_length, std::uint8_t, void* server) {
                auto& headers = static_cast<Server*>(server)->headers[frame->hd.stream_id];
                headers[text(name, name_length)] = text(value, value_length);
                return 0;
            });
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
            callbacks, [](nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data,
                          std::size_t length, void* server) {
                static_cast<Server*>(server)->bodies[stream] += text(data, length);
                return 0;
            });
        nghttp2_session_server_new(&session, callbacks, this);
        nghttp2_session_callbacks_del(callbacks);
        nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server() { nghttp2_session_del(session); }

    void respond(std::int32_t stream, std::string status, std::string body) {
        responses[stream] = std::move(body);
        nghttp2_nv header{reinterpret_cast<std::uint8_t*>(const_cast<char*>(":status")),
                          reinterpret_cast<std::uint8_t*>(status.data()), 7, status.size(), 0};
        const nghttp2_data_provider provider{{.ptr = &responses[stream]}, read};
        nghttp2_submit_response(session, stream, &header, 1, &provider);
    }

    nghttp2_session* session = nullptr;
    std::map<std::int32_t, std::map<std::string, std::string>> headers;
    std::map<std::int32_t, std::string> bodies;
    std::map<std::int32_t, std::string> responses;

  private:
    static std::string text(const std::uint8_t* bytes, std::size_t length) {
        return {reinterpret_cast<const char*>(bytes), length};
    }
    static ssize_t read(nghttp2_session*, std::int32_t, std::uint8_t* to, std::size_t length, std::uint32_t* flags,
                        nghttp2_data_source* source, void*) {
        auto& remaining = *static_cast<std::string*>(source->ptr);
        const std::size_t bytes = remaining.copy(reinterpret_cast<char*>(to), length);
        remaining.erase(0, bytes);
        if (remaining.empty()) {
            *flags |= NGHTTP2_DATA_FLAG_EOF;
        }
        return static_cast<ssize_t>(bytes);
    }
};

/// Moves bytes between both sides until neither has more to send. Returns false if the client is done with the
/// connection.
bool exchange(Http2& client, Server& server) {
    bool is_open = true;
    for (int round = 0; round < 20; ++round) {
        std::string bytes;
        client.collect(bytes);
        nghttp2_session_mem_recv(server.session, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
        const std::uint8_t* respond = nullptr;
        for (ssize_t length = 0; (length = nghttp2_session_mem_send(server.session, &respond)) > 0;) {
            is_open = client.receive({reinterpret_cast<const char*>(respond), static_cast<std::size_t>(length)});
        }
    }
    return is_open;
}

}  // namespace

TEST_CASE("requests arrive complete, and each gets its own response") {
    Http2 client("127.0.0.1:9000", 4);
    Server server;
    Probe first(std::string(64'000, 'a'));
    Probe second("b");
    client.submit(first);
    client.submit(second);
    exchange(client, server);
    CHECK(server.bodies[1] == first.audio);
    CHECK(server.bodies[3] == "b");
    CHECK(server.headers[1]["content-length"] == "64000");
    CHECK(server.headers[1]["x-cpu-passes"] == "4");
    CHECK(server.headers[1][":authority"] == "127.0.0.1:9000");
    server.respond(3, "200", "two");
    server.respond(1, "200", "one");
    exchange(client, server);
    CHECK(first.ended->value() == "one");
    CHECK(second.ended->value() == "two");
}

TEST_CASE("an error status is a failure for any body") {
    Http2 client("a:1", 4);
    Server server;
    Probe probe("x");
    client.submit(probe);
    exchange(client, server);
    server.respond(1, "503", "{}");
    exchange(client, server);
    CHECK(probe.ended->error().kind == Kind::http_5xx);
    CHECK(probe.ended->error().status == 503);
}

TEST_CASE("a response that is too long is a failure") {
    Http2 client("a:1", 4);
    Server server;
    Probe probe("x");
    client.submit(probe);
    exchange(client, server);
    server.respond(1, "200", std::string(max_response_bytes + 1, 'x'));
    CHECK(exchange(client, server));
    CHECK(probe.ended->error().kind == Kind::parse_error);
    CHECK(probe.ended->error().status == 200);
}

TEST_CASE("a cancelled request isn't finished, and the connection stays usable") {
    Http2 client("a:1", 4);
    Server server;
    Probe next("y");
    {
        Probe gone(std::string(100'000, 'x'));
        client.submit(gone);
        exchange(client, server);
        client.cancel(gone);
    }
    client.submit(next);
    exchange(client, server);
    server.respond(3, "200", "y");
    CHECK(exchange(client, server));
    CHECK(next.ended->value() == "y");
}

TEST_CASE("a reset differs from a request that the server refused") {
    Http2 client("a:1", 4);
    Server server;
    Probe reset("x");
    Probe refused("y");
    client.submit(reset);
    client.submit(refused);
    exchange(client, server);
    nghttp2_submit_rst_stream(server.session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_INTERNAL_ERROR);
    nghttp2_submit_rst_stream(server.session, NGHTTP2_FLAG_NONE, 3, NGHTTP2_REFUSED_STREAM);
    exchange(client, server);
    CHECK(reset.ended->error().kind == Kind::connection_reset);
    CHECK_FALSE(reset.was_refused);
    CHECK(refused.was_refused);
}

TEST_CASE("no request is sent after GOAWAY") {
    Http2 client("a:1", 4);
    Server server;
    CHECK(client.accepts_requests());
    nghttp2_submit_goaway(server.session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, nullptr, 0);
    exchange(client, server);
    CHECK_FALSE(client.accepts_requests());
}

TEST_CASE("a peer without HTTP/2 is a parse error, and a closed connection is a reset") {
    for (const bool speaks : {false, true}) {
        Http2 client("a:1", 4);
        Probe probe("x");
        client.submit(probe);
        std::string bytes;
        client.collect(bytes);
        if (!speaks) {
            client.receive("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            client.collect(bytes);
        }
        client.fail("it was closed");
        CHECK(probe.ended->error().kind == (speaks ? Kind::connection_reset : Kind::parse_error));
        CHECK_FALSE(probe.ended->error().status);
    }
}
