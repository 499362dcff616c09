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

/// A batch on its way to the inference.
class Flight final : public Call {
  public:
    Flight(Session& session, Taken of, TimePoint now, Clock::duration lateness)
        : taken(of), began(now), flush_lateness(lateness), session_(session) {}

    void landed(std::expected<std::string_view, Failure> answer) override;

    const Taken taken;
    const TimePoint began;
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
    void message(std::string_view message, uWS::OpCode code);
    void pinged(std::string_view payload);
    void drained();
    void closed(int code, std::string_view reason);

    /// Does the work that is due. Returns when the next visit is due; nothing once the socket is closed.
    std::optional<TimePoint> visit();

    /// Starts the drain when the gateway stops. Frames that the client has sent by now are still processed, later
    /// ones are not.
    void drain(TimePoint deadline);

    /// Handles the result of the flight.
    void land(std::expected<std::string_view, Failure> answer);

    /// Shuts the sending side down once the Close frame is written.
    void shut_down();

  private:
    enum class State : std::uint8_t { waits_for_start, runs, drains, says_farewell };

    void start(TimePoint now);
    void frame(std::string_view audio);
    void refuse(int code, std::string_view reason);
    void read(TimePoint now);
    void trim();
    void tick(Clock::duration lateness);
    void report_overflow(Clock::duration lateness);
    void flush(Clock::duration lateness);
    void continue_drain();
    void report(const Taken& taken, const Failure& failure, Clock::duration lateness,
                std::optional<Clock::duration> elapsed);
    void say(std::string_view text);
    void end(int code, std::string_view reason, End end);
    void account(End end);
    void poll(int events);

    Worker& worker_;
    /// Null once the socket is closed or the library replies to the client's Close frame.
    Socket* socket_;
    const std::size_t lane_;
    State state_ = State::waits_for_start;
    std::optional<Schedule> schedule_;
    /// When the frames that are being delivered were read.
    TimePoint read_at_;
    bool is_visited_ = false;
    Backlog backlog_;
    /// The audio of the frames in the backlog.
    std::string audio_;
    /// The request in flight. A single pointer enforces the contract's rule of one request.
    std::unique_ptr<Flight> flight_;
    /// Time of the last progress: when no bytes waited for the client, or it read some of them.
    TimePoint progress_at_ = Clock::now();
    /// Deadline of a drain or of the close handshake.
    TimePoint deadline_;
};

}  // namespace gateway
