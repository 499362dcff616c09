#include "session.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <format>
#include <tuple>
#include <utility>

#include "worker.hpp"

// uSockets has no public function that reads a socket which isn't polled. Its loop calls this one for each ready
// socket. It reads once, up to 512 KiB, and passes all bytes to uWebSockets' parser.
extern "C" void us_internal_dispatch_ready_poll(us_poll_t* poll, int error, int events);

namespace gateway {
namespace {

/// Bytes that may wait for a client, from the contract.
constexpr std::size_t max_unsent_bytes = 64 << 10;
/// Time without progress after which a client counts as slow, from the contract.
constexpr milliseconds stall_timeout{10'000};
/// Time limit for writing the Close frame, and for reading and discarding inbound bytes after it.
constexpr milliseconds linger_time{1000};
/// Frames beyond the limit that are collected before the oldest are dropped, because each drop moves all other
/// frames.
constexpr std::uint64_t trim_slack = 64;

/// uSockets' flag for readable, which is epoll's.
constexpr int readable = EPOLLIN;

us_socket_t* raw(Socket* socket) { return reinterpret_cast<us_socket_t*>(socket); }
// A socket's first member is its poll.
us_poll_t* poll_of(Socket* socket) { return reinterpret_cast<us_poll_t*>(socket); }

std::size_t header_bytes(std::size_t payload) { return payload < 126 ? 2 : payload <= 0xffff ? 4 : 10; }
constexpr std::size_t mask_bytes = 4;

CloseReason close_reason_of(std::string_view reason) {
    if (reason == uWS::ERR_TOO_BIG_MESSAGE) {
        return CloseReason::too_big;
    }
    // uWebSockets gives no reason for other invalid frames, which look like the end of the stream.
    return reason == uWS::ERR_INVALID_TEXT ? CloseReason::utf8 : CloseReason::eof;
}

}  // namespace

void PendingRequest::on_response(std::expected<std::string_view, Failure> response) {
    session_.complete(std::move(response));
}

Session::Session(Worker& worker, Socket& socket)
    : worker_(worker), socket_(&socket), connection_index_(worker.inference().next_connection()) {}

Session::~Session() { worker_.unregister(*this); }

void Session::on_message(std::string_view message, uWS::OpCode code) {
    worker_.counts().bytes_received += message.size() + header_bytes(message.size()) + mask_bytes;
    switch (state_) {
        case State::running:
            if (code == uWS::OpCode::BINARY && message.size() == frame_bytes) {
                receive_frame(message);
            } else if (code == uWS::OpCode::BINARY) {
                reject(1003, "expected 640 byte PCM frame");
            } else {
                reject(1002, "expected binary PCM frames after start");
            }
            break;
        case State::awaiting_start:
            if (code == uWS::OpCode::TEXT && is_start(message)) {
                start(Clock::now());
            } else {
                reject(1002, "first message must be start");
            }
            break;
        default:
            break;
    }
}

void Session::on_ping(std::string_view payload) {
    // The library has sent the pong already.
    auto& counts = worker_.counts();
    counts.bytes_received += payload.size() + header_bytes(payload.size()) + mask_bytes;
    counts.bytes_sent += payload.size() + header_bytes(payload.size());
    if (socket_->getBufferedAmount() > max_unsent_bytes) {
        end(1013, "slow consumer", CloseReason::slow_consumer);
    }
}

void Session::on_drain() {
    last_progress_ = Clock::now();
    if (state_ == State::closing) {
        worker_.shut_down_later(*this);
    }
}

void Session::on_close(int code, std::string_view reason) {
    if (us_socket_is_closed(0, raw(socket_))) {
        record_end(close_reason_of(reason));
    } else {
        // The library has replied to the client's Close frame. The loop waits for the end of the stream for a
        // limited time.
        worker_.counts().bytes_sent += 4 + reason.size();
        record_end(code == 1006 ? CloseReason::protocol : CloseReason::client);
        poll(us_poll_events(poll_of(socket_)) | readable);
        us_socket_timeout(0, raw(socket_), 1);
    }
    socket_ = nullptr;
}

std::optional<TimePoint> Session::visit() {
    const TimePoint now = Clock::now();
    if (socket_ && state_ == State::running) {
        const auto lateness = schedule_->tick(now);
        read(now);
        if (socket_ && state_ == State::running && lateness) {
            tick(*lateness);
        }
    }
    if (socket_ && socket_->getBufferedAmount() == 0) {
        last_progress_ = now;
    }
    if (socket_ && state_ != State::closing && now - last_progress_ > stall_timeout) {
        end(1013, "slow consumer", CloseReason::slow_consumer);
    }
    if (socket_ && state_ == State::draining && now >= deadline_) {
        end(1001, "the gateway stops", CloseReason::shutdown);
    }
    if (socket_ && state_ == State::closing && now >= deadline_) {
        socket_->close();
    }
    if (!socket_) {
        return std::nullopt;
    }
    switch (state_) {
        case State::running:
            return schedule_->next_visit(now);
        case State::awaiting_start:
            return now + visit_interval;
        default:
            return std::min(deadline_, now + visit_interval);
    }
}

void Session::drain(TimePoint deadline) {
    if (socket_ && state_ == State::running) {
        read(Clock::now());
    }
    if (!socket_ || state_ == State::closing) {
        return;
    }
    state_ = State::draining;
    deadline_ = deadline;
    continue_drain();
}

void Session::complete(std::expected<std::string_view, Failure> response) {
    // Destroyed at the end of this function, because it holds the response.
    const std::unique_ptr<PendingRequest> request = std::move(pending_);
    const auto& [frames, started_at, lateness] = std::tie(request->span, request->started_at, request->flush_lateness);
    auto recognition = response.and_then([&](std::string_view body) -> std::expected<Recognition, Failure> {
        return Recognition::parse(body, frames.span, worker_.config().cpu_passes)
            .transform_error([](std::string error) { return Failure{Kind::parse_error, 200, std::move(error)}; });
    });
    auto& counts = worker_.counts();
    counts.in_flight -= frames.span.frames;
    --counts.requests_in_flight;
    if (recognition) {
        ++counts.answered;
        counts.delivered += frames.span.frames;
        send(partial(frames.span, *recognition, worker_.echo(), lateness));
    } else {
        ++counts.failed[static_cast<std::size_t>(recognition.error().kind)];
        counts.drop(recognition.error().kind, frames.span.frames);
        report(frames, recognition.error(), lateness, Clock::now() - started_at);
    }
    worker_.return_buffer(std::move(request->audio));
    if (state_ == State::draining) {
        continue_drain();
    }
}

void Session::shut_down() {
    if (socket_ && socket_->getBufferedAmount() == 0) {
        us_socket_shutdown(0, raw(socket_));
    }
}

void Session::start(TimePoint now) {
    ++worker_.counts().received;
    ++worker_.counts().consumed;
    read_at_ = now;
    state_ = State::running;
    schedule_ = worker_.schedule(now);
    // From now on the socket is not polled but visited.
    poll(us_poll_events(poll_of(socket_)) & ~readable);
}

void Session::receive_frame(std::string_view audio) {
    if (!is_reading_) {
        // The frames came with the start message, or while the library polls the socket to write.
        read_at_ = Clock::now();
    }
    if (audio_.capacity() < frame_bytes) {
        audio_ = worker_.take_buffer();
    }
    backlog_.add(read_at_);
    audio_.append(audio);
    ++worker_.counts().received;
    ++worker_.counts().waiting;
    if (backlog_.waiting() > worker_.config().max_buffered_frames + trim_slack) {
        trim();
    }
}

void Session::reject(int code, std::string_view reason) {
    ++worker_.counts().received;
    worker_.counts().drop(DropReason::protocol, 1);
    end(code, reason, CloseReason::protocol);
}

void Session::read(TimePoint now) {
    read_at_ = now;
    is_reading_ = true;
    us_internal_dispatch_ready_poll(poll_of(socket_), 0, readable);
    is_reading_ = false;
    if (socket_ && state_ == State::running) {
        trim();
        // After a partial write the library polls for both events, and later continues to poll for reading.
        poll(us_poll_events(poll_of(socket_)) & ~readable);
    }
}

void Session::trim() {
    const std::uint64_t limit = worker_.config().max_buffered_frames;
    if (backlog_.waiting() > limit) {
        const std::uint64_t excess = backlog_.waiting() - limit;
        backlog_.drop_oldest(excess);
        audio_.erase(0, excess * frame_bytes);
        worker_.counts().waiting -= excess;
        worker_.counts().drop(Kind::overflow, excess);
    }
}

void Session::tick(Clock::duration lateness) {
    auto& counts = worker_.counts();
    counts.lateness.record(lateness);
    if (pending_) {
        ++counts.ticks_skipped;
        return;
    }
    ++(backlog_.waiting() > 0 ? counts.ticks_flushed : counts.ticks_empty);
    report_overflow(lateness);
    flush(lateness);
}

void Session::report_overflow(Clock::duration lateness) {
    if (const auto dropped = backlog_.take_overflow()) {
        auto message = std::format("{} frames waited: the oldest {} were dropped", worker_.config().max_buffered_frames,
                                   dropped->span.frames);
        report(*dropped, {Kind::overflow, {}, std::move(message)}, lateness, std::nullopt);
    }
}

void Session::flush(Clock::duration lateness) {
    const std::uint64_t frames = backlog_.waiting();
    if (frames == 0 || state_ == State::closing) {
        return;
    }
    const TimePoint now = Clock::now();
    auto& counts = worker_.counts();
    counts.waiting -= frames;
    counts.in_flight += frames;
    ++counts.requests;
    ++counts.requests_in_flight;
    counts.in_flight_per_connection_max = 1;
    pending_ = std::make_unique<PendingRequest>(*this, backlog_.remove(frames), now, lateness);
    pending_->audio = std::exchange(audio_, {});
    worker_.inference().begin(*pending_, connection_index_, now);
}

void Session::continue_drain() {
    if (!pending_ && state_ == State::draining) {
        report_overflow({});
        flush({});
    }
    if (!pending_ && state_ == State::draining) {
        end(1001, "the gateway stops", CloseReason::shutdown);
    }
}

void Session::report(const ReadSpan& frames, const Failure& failure, Clock::duration lateness,
                     std::optional<Clock::duration> elapsed) {
    const TimePoint now = Clock::now();
    send(error(frames.span, failure,
               {now - frames.oldest_read_at, now - frames.newest_read_at, lateness, elapsed, backlog_.waiting()}));
}

void Session::send(std::string_view text) {
    if (!socket_ || state_ == State::closing) {
        return;
    }
    if (socket_->getBufferedAmount() + text.size() > max_unsent_bytes) {
        end(1013, "slow consumer", CloseReason::slow_consumer);
        return;
    }
    ++worker_.counts().sent;
    worker_.counts().bytes_sent += text.size() + header_bytes(text.size());
    socket_->send(text, uWS::OpCode::TEXT);
}

void Session::end(int code, std::string_view text, CloseReason reason) {
    if (state_ == State::closing) {
        return;
    }
    record_end(reason);
    state_ = State::closing;
    deadline_ = Clock::now() + linger_time;
    std::string payload = {static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
    payload += text;
    worker_.counts().bytes_sent += payload.size() + header_bytes(payload.size());
    // Not the library's own end(): after it there are no more callbacks for the socket, which may stay open for
    // seconds.
    socket_->send(payload, uWS::OpCode::CLOSE);
    // Inbound bytes are read and discarded, because unread bytes would make the kernel reset the connection.
    poll(us_poll_events(poll_of(socket_)) | readable);
    worker_.shut_down_later(*this);
}

void Session::record_end(CloseReason reason) {
    if (state_ == State::closing) {
        return;
    }
    auto& counts = worker_.counts();
    const std::uint64_t waiting = backlog_.waiting();
    counts.waiting -= waiting;
    counts.drop(DropReason::closed, waiting);
    if (waiting > 0) {
        backlog_.remove(waiting);
        worker_.return_buffer(std::exchange(audio_, {}));
    }
    if (pending_) {
        const std::uint64_t frames = pending_->span.span.frames;
        counts.in_flight -= frames;
        counts.drop(DropReason::closed, frames);
        ++counts.abandoned;
        --counts.requests_in_flight;
        pending_.reset();
    }
    --counts.open;
    counts.close(reason);
    worker_.release();
}

void Session::poll(int events) { us_poll_change(poll_of(socket_), worker_.loop(), events); }

}  // namespace gateway
