// Starts the threads: the metrics port, and the workers. Then waits for the signal to stop.
#include <nghttp2/nghttp2.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <print>
#include <semaphore>
#include <thread>

#include "books.hpp"
#include "config.hpp"
#include "metrics.hpp"
#include "worker.hpp"

namespace {

using namespace gateway;

/// How long all sessions together may take to end.
constexpr milliseconds stop_time{4000};

/// As many descriptors as the system allows: each session is one.
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

struct Started {
    Worker* worker = nullptr;
    std::uint16_t port = 0;
};

/// Runs a worker in a thread of its own, listening on `port`; no worker if it can't be bound.
Started start_worker(const Config& config, Books& books, std::uint16_t port, std::counting_semaphore<>& ended) {
    std::promise<Started> promise;
    auto started = promise.get_future();
    std::thread([&config, &books, &page = books.page(), port, &ended, promise = std::move(promise)]() mutable {
        {
            Worker worker(config, books, page);
            const auto bound = worker.listen(port);
            promise.set_value(bound ? Started{&worker, *bound} : Started{});
            if (bound) {
                worker.run();
            }
        }
        ended.release();
    }).detach();
    return started.get();
}

int serve(const Config& config) {
    const sigset_t signals = block_stop_signals();
    raise_descriptor_limit();
    Books books;
    std::counting_semaphore<> ended(0);
    std::vector<Worker*> workers;
    std::uint16_t port = config.port;
    // The kernel deals connections out to those that listen on the same port.
    for (unsigned count = config.workers(); count > 0; --count) {
        const Started started = start_worker(config, books, port, ended);
        if (!started.worker) {
            std::println(stderr, "failed to listen on {}", address(config.host, port));
            return 1;
        }
        workers.push_back(started.worker);
        port = started.port;
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

int main(int count, char** arguments) {
    const std::vector<std::string_view> given(arguments + 1, arguments + count);
    const auto config = Config::parse(given, std::getenv);
    if (!config) {
        std::println(stderr, "cpp23-uwebsockets: {}", config.error());
        return 2;
    }
    if (config->wants_help) {
        std::print("{}", usage());
        return 0;
    }
    if (config->wants_version) {
        std::println("cpp23-uwebsockets {} (clang {}, nghttp2 {})", VERSION, __clang_version__,
                     nghttp2_version(0)->version_str);
        return 0;
    }
    // The thread of the metrics port goes on until the process ends: nothing is destroyed under it.
    std::_Exit(serve(*config));
}
