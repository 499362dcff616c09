// One event loop and its sessions: it accepts and upgrades connections, turns the wheel, and drains the sessions.
#pragma once

#include <App.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "books.hpp"
#include "config.hpp"
#include "inference.hpp"
#include "session.hpp"
#include "timer_wheel.hpp"

namespace gateway {

/// A worker belongs to one thread, which constructs, runs and destroys it. Only `stop` may be called from another
/// thread.
class Worker {
  public:
    Worker(const Config& config, Books& books, PublishedCounts& published);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    /// Listens on `port`, which other workers may share. Returns false if it can't be bound.
    bool listen(std::uint16_t port);

    /// Runs the loop. Returns after `stop`, when all sessions have ended.
    void run();

    /// Drains all sessions, and then ends the loop.
    void stop();

    // Functions for its sessions.
    const Config& config() const { return config_; }
    EchoedSettings echo() const { return {config_.cpu_passes, config_.model_delay_ms}; }
    Counts& counts() { return counts_; }
    Inference& inference() { return inference_; }
    us_loop_t* loop() { return reinterpret_cast<us_loop_t*>(loop_); }
    Schedule schedule(TimePoint start);
    std::string take_buffer();
    void return_buffer(std::string buffer);
    /// Shuts the stream of `session` down once the library has written its pending bytes.
    void shut_down_later(Session& session) { shutting_down_.push_back(&session); }
    void unregister(const Session& session) { std::erase(shutting_down_, &session); }
    /// Decrements the number of open connections.
    void release() { --books_.connections; }

  private:
    void route();
    void upgrade(uWS::HttpResponse<false>* response, uWS::HttpRequest* request, us_socket_context_t* context);
    void open(Socket* socket);
    void turn();
    void after_iteration();
    void drain();
    void set_timer(int milliseconds);

    const Config& config_;
    Books& books_;
    PublishedCounts& published_;
    Counts counts_;
    uWS::Loop* loop_;
    us_timer_t* timer_;
    Inference inference_;
    TimerWheel<Session> wheel_;
    std::vector<Session*> shutting_down_;
    /// Spare audio buffers, which no session uses.
    std::vector<std::string> buffers_;
    std::mt19937_64 random_;
    uWS::App app_;
    us_listen_socket_t* listener_ = nullptr;
    bool is_timer_running_ = false;
    bool is_draining_ = false;
    bool has_ended_ = false;
};

}  // namespace gateway
