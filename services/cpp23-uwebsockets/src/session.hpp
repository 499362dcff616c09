// One session, from the upgrade to the last byte. All of it runs on its worker's loop.
//
// While a session runs, the loop doesn't poll its socket: a wake-up for each of 50 frames per second costs more
// than all other work. The socket is read when the session is visited: at its flush tick, and a few times in
// between.
#pragma once

#include <App.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backlog.hpp"
#include "books.hpp"
#include "inference.hpp"
#include "schedule.hpp"

namespace gateway {

class Session;
class Worker;

/// The user data that uWebSockets stores with each socket.
struct PerSocket {
    Session* session = nullptr;
};
using Socket = uWS::WebSocket<false, true, PerSocket>;

/// A batch in flight.
class PendingRequest final : public Call {
  public:
    PendingRequest(Session& session, ReadSpan frames, TimePoint now, Clock::duration lateness)
        : span(frames), started_at(now), flush_lateness(lateness), session_(session) {}

    void on_response(std::expected<std::string_view, Failure> response) override;

    const ReadSpan span;
    const TimePoint started_at;
    const Clock::duration flush_lateness;

  private:
    Session& session_;
};

class Session {
  public:
    Session(Worker& worker, Socket& socket);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session();

    // Callbacks of the library.
    void on_message(std::string_view message, uWS::OpCode code);
    void on_ping(std::string_view payload);
    void on_drain();
    void on_close(int code, std::string_view reason);

    /// Reads the socket and does the work that is due. Returns when the next visit is due; nothing once the socket is
    /// closed.
    std::optional<TimePoint> visit();

    /// Starts the drain when the gateway stops. Frames that the client has sent by now are still processed, later
    /// ones are not.
    void drain(TimePoint deadline);

    /// Handles the response or the failure of the request in flight.
    void complete(std::expected<std::string_view, Failure> response);

    /// Shuts the sending side down once the Close frame is written.
    void shut_down();

  private:
    enum class State : std::uint8_t { awaiting_start, running, draining, closing };

    void start(TimePoint now);
    void receive_frame(std::string_view audio);
    void reject(int code, std::string_view reason);
    void read(TimePoint now);
    void trim();
    void tick(Clock::duration lateness);
    void report_overflow(Clock::duration lateness);
    void flush(Clock::duration lateness);
    void continue_drain();
    void report(const ReadSpan& frames, const Failure& failure, Clock::duration lateness,
                std::optional<Clock::duration> elapsed);
    void send(std::string_view text);
    void end(int code, std::string_view text, CloseReason reason);
    void record_end(CloseReason reason);
    void poll(int events);

    Worker& worker_;
    /// Null once the socket is closed or the library replies to the client's Close frame.
    Socket* socket_;
    const std::size_t connection_index_;
    State state_ = State::awaiting_start;
    std::optional<Schedule> schedule_;
    /// When the frames that the library delivers now were read.
    TimePoint read_at_;
    bool is_reading_ = false;
    Backlog backlog_;
    /// The audio of the frames in the backlog.
    std::string audio_;
    /// The request in flight. A single pointer enforces the contract's rule of one request.
    std::unique_ptr<PendingRequest> pending_;
    /// Time of the last progress: when no bytes waited for the client, or it read some of them.
    TimePoint last_progress_ = Clock::now();
    /// Deadline of a drain or of the close handshake.
    TimePoint deadline_;
};

}  // namespace gateway
