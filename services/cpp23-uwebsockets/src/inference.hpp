// Requests to the inference: HTTP/2 with prior knowledge (h2c) over a few connections, on the loop that serves the
// sessions.
#pragma once

#include <libusockets.h>

#include <list>
#include <memory>
#include <vector>

#include "config.hpp"
#include "http2.hpp"

namespace gateway {

class Inference;

/// A request with its position in the queue of deadlines. Destroying it before its response has arrived abandons it.
class Call : public Request {
  public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() override;

    /// Called once with the body of the response or with the failure. May destroy the call.
    virtual void on_response(std::expected<std::string_view, Failure> response) = 0;

  private:
    friend class Inference;

    void on_finished(std::expected<std::string_view, Failure> response) final;

    /// Null unless the call is in flight.
    Inference* inference_ = nullptr;
    struct Connection* connection_ = nullptr;
    std::size_t connection_index_ = 0;
    TimePoint deadline_;
    std::list<Call*>::iterator position_;
    bool was_retried_ = false;
};

/// The connections of one worker to the inference, driven by the worker's loop.
class Inference {
  public:
    Inference(us_loop_t* loop, const Config& config);
    Inference(const Inference&) = delete;
    Inference& operator=(const Inference&) = delete;
    ~Inference();

    /// Returns the index of the next session's connection. Sessions take the connections in turn and keep them.
    std::size_t next_connection() { return assigned_++ % current_.size(); }

    /// Sends `call`, whose tick runs at `now`. `on_response` is always called later, even if there is no connection.
    void begin(Call& call, std::size_t index, TimePoint now);

    /// Fails calls and connections whose time limit has passed. Called every few milliseconds.
    void expire(TimePoint now);

    /// Writes pending bytes of all connections. Called once per iteration of the loop.
    void flush();

    /// Closes all connections.
    void close() { us_socket_context_close(0, context_); }

  private:
    friend class Call;

    void send(Call& call);
    void remove(Call& call);
    Connection& connection_for(std::size_t index);
    void drop(Connection& connection, std::string_view reason);
    static void write(Connection& connection);
    void set_callbacks();

    us_socket_context_t* context_;
    const Config& config_;
    /// All connections. Those in `current_` accept requests; others only finish the ones they have.
    std::list<std::unique_ptr<Connection>> connections_;
    std::vector<Connection*> current_;
    std::size_t assigned_ = 0;
    /// All calls in flight in the order of their deadlines, since all have the same time limit.
    std::list<Call*> calls_;
};

}  // namespace gateway
