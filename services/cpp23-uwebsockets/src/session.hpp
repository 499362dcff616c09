// One session, from its upgrade to its last byte. Everything happens on its worker's loop.
//
// While a session runs, the loop doesn't wait for its socket: a wake-up for each of 50 frames per second costs more
// than all the rest. It is read when the session is visited: at its flush tick, and a few times in between.
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

/// What uWebSockets keeps with each socket.
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

    // What the library says.
    void message(std::string_view message, uWS::OpCode code);
    void pinged(std::string_view payload);
    void drained();
    void closed(int code, std::string_view reason);

    /// Does what is due. Says when it wants to be visited again; never, once the socket is gone.
    std::optional<TimePoint> visit();

    /// The gateway stops: what the client has sent by now still counts, and nothing after it.
    void drain(TimePoint deadline);

    /// The flight has ended.
    void land(std::expected<std::string_view, Failure> answer);

    /// Ends the stream behind the close frame, as soon as that is written.
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
    /// Null once it is closed or the library answers the client's close.
    Socket* socket_;
    const std::size_t lane_;
    State state_ = State::waits_for_start;
    std::optional<Schedule> schedule_;
    /// When the frames that come now were read.
    TimePoint read_at_;
    bool is_visited_ = false;
    Backlog backlog_;
    /// The frames of the backlog.
    std::string audio_;
    /// At most one request: there is no place for another.
    std::unique_ptr<Flight> flight_;
    /// When last nothing waited for the client, or it read some of what did.
    TimePoint progress_at_ = Clock::now();
    /// When a drain or a farewell must be over.
    TimePoint deadline_;
};

}  // namespace gateway
