// Requests to the inference: HTTP/2 with prior knowledge over a few connections, on the loop that serves the sessions.
#pragma once

#include <libusockets.h>

#include <list>
#include <memory>
#include <vector>

#include "config.hpp"
#include "http2.hpp"

namespace gateway {

class Inference;

/// A request with its place in the queue of deadlines. Destroyed before its answer came, it is abandoned.
class Call : public Request {
  public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() override;

    /// The answer, or why there is none. Called once; may destroy the call.
    virtual void landed(std::expected<std::string_view, Failure> answer) = 0;

  private:
    friend class Inference;

    void finished(std::expected<std::string_view, Failure> answer) final;

    /// Null while it isn't in flight.
    Inference* inference_ = nullptr;
    struct Link* link_ = nullptr;
    std::size_t lane_ = 0;
    TimePoint deadline_;
    std::list<Call*>::iterator place_;
    bool was_repeated_ = false;
};

/// The connections of one worker to the inference. Its loop drives it.
class Inference {
  public:
    Inference(us_loop_t* loop, const Config& config);
    Inference(const Inference&) = delete;
    Inference& operator=(const Inference&) = delete;
    ~Inference();

    /// The connection of the next session: they take them in turn, and keep to theirs.
    std::size_t next_lane() { return lanes_++ % current_.size(); }

    /// Sends `call`, whose tick runs at `now`. It lands later, also when there is no connection.
    void begin(Call& call, std::size_t lane, TimePoint now);

    /// Ends what takes too long. Called every few milliseconds.
    void expire(TimePoint now);

    /// Writes what was begun. Called once per round of the loop.
    void flush();

    /// Ends all connections.
    void close() { us_socket_context_close(0, context_); }

  private:
    friend class Call;

    void send(Call& call);
    void forget(Call& call);
    Link& link_of(std::size_t lane);
    void drop(Link& link, std::string_view why);
    static void write(Link& link);
    void listen();

    us_socket_context_t* context_;
    const Config& config_;
    /// All connections; those of `current_` take requests, others only end what they have.
    std::list<std::unique_ptr<Link>> links_;
    std::vector<Link*> current_;
    std::size_t lanes_ = 0;
    /// All calls in flight, the first to expire first: all have the same time.
    std::list<Call*> calls_;
};

}  // namespace gateway
