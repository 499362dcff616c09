// Starts the threads of the metrics port and of the workers, prints the ready line, and waits for SIGTERM or
// SIGINT.
#include <netdb.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <format>
#include <future>
#include <optional>
#include <print>
#include <semaphore>
#include <thread>
#include <vector>

#include "books.hpp"
#include "config.hpp"
#include "metrics.hpp"
#include "worker.hpp"

namespace {

using namespace gateway;

/// Time limit for all sessions to end after a stop.
constexpr milliseconds stop_time{4000};

/// Raises the soft limit of open files to the hard limit, because each session needs a file descriptor.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

sigset_t block_stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    return signals;
}

std::string address(const std::string& host, std::uint16_t port) {
    return host.contains(':') ? std::format("[{}]:{}", host, port) : std::format("{}:{}", host, port);
}

/// Reserves a free port that workers can share, for port 0. uSockets can share a port among workers only if its
/// number is given.
class FreePort {
  public:
    explicit FreePort(const std::string& host) {
        addrinfo hints{};
        hints.ai_flags = AI_NUMERICHOST;
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* resolved = nullptr;
        if (getaddrinfo(host.c_str(), "0", &hints, &resolved) != 0) {
            return;
        }
        socket_ = ::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int enabled = 1;
        setsockopt(socket_, SOL_SOCKET, SO_REUSEPORT, &enabled, sizeof enabled);
        // IPv4 and IPv6 addresses have the port at the same offset.
        sockaddr_in6 bound{};
        socklen_t length = sizeof bound;
        if (bind(socket_, resolved->ai_addr, resolved->ai_addrlen) == 0 &&
            getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length) == 0) {
            port = ntohs(bound.sin6_port);
        }
        freeaddrinfo(resolved);
    }
    FreePort(const FreePort&) = delete;
    FreePort& operator=(const FreePort&) = delete;
    ~FreePort() { close(socket_); }

    /// The reserved port; 0 if there is none.
    std::uint16_t port = 0;

  private:
    int socket_ = -1;
};

/// Starts a worker on a new thread, listening on `port`. Returns null if the port can't be bound.
Worker* start_worker(const Config& config, Books& books, std::uint16_t port, std::counting_semaphore<>& ended) {
    std::promise<Worker*> promise;
    auto started = promise.get_future();
    std::thread([&config, &books, &counts = books.add_worker(), port, &ended, promise = std::move(promise)]() mutable {
        {
            Worker worker(config, books, counts);
            const bool is_bound = worker.listen(port);
            promise.set_value(is_bound ? &worker : nullptr);
            if (is_bound) {
                worker.run();
            }
        }
        ended.release();
    }).detach();
    return started.get();
}

/// Starts all workers. If `port` is 0, it is set to the port that they share. Returns an empty list if one can't
/// listen.
std::vector<Worker*> start_workers(const Config& config, Books& books, std::uint16_t& port,
                                   std::counting_semaphore<>& ended) {
    std::optional<FreePort> free;
    if (port == 0) {
        port = free.emplace(config.host).port;
    }
    std::vector<Worker*> workers;
    for (unsigned count = config.workers(); count > 0; --count) {
        Worker* const worker = start_worker(config, books, port, ended);
        if (!worker) {
            return {};
        }
        workers.push_back(worker);
    }
    return workers;
}

int serve(const Config& config) {
    const sigset_t signals = block_stop_signals();
    raise_descriptor_limit();
    Books books;
    std::counting_semaphore<> ended(0);
    std::uint16_t port = config.port;
    const std::vector<Worker*> workers = start_workers(config, books, port, ended);
    if (workers.empty()) {
        std::println(stderr, "failed to listen on {}", address(config.host, config.port));
        return 1;
    }
    const auto metrics_port = serve_metrics(config.host, config.metrics_port, books);
    if (!metrics_port) {
        std::println(stderr, "failed to listen on {} for metrics", address(config.host, config.metrics_port));
        return 1;
    }
    std::println(R"({{"event":"ready","address":"{}","metrics_address":"{}","pid":{}}})", address(config.host, port),
                 address(config.host, *metrics_port), getpid());
    std::fflush(stdout);

    int signal = 0;
    sigwait(&signals, &signal);
    books.accepting = false;
    const TimePoint deadline = Clock::now() + stop_time;
    for (Worker* const worker : workers) {
        worker->stop();
    }
    for (std::size_t count = 0; count < workers.size(); ++count) {
        if (!ended.try_acquire_until(deadline)) {
            std::println(stderr, "sessions did not end within {} ms", stop_time.count());
            break;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string_view> arguments(argv + 1, argv + argc);
    const auto config = Config::parse(arguments, std::getenv);
    if (!config) {
        std::println(stderr, "cpp23-uwebsockets: {}", config.error());
        return 2;
    }
    if (config->shows_help) {
        std::print("{}", usage());
        return 0;
    }
    if (config->shows_version) {
        std::println("cpp23-uwebsockets {} (clang {}, nghttp2 {})", VERSION, __clang_version__,
                     nghttp2_version(0)->version_str);
        return 0;
    }
    // The metrics thread runs until the process ends, so no object that it uses may be destroyed.
    std::_Exit(serve(*config));
}
