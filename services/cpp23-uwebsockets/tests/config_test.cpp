#include "config.hpp"

#include <doctest/doctest.h>

#include <map>
#include <vector>

using namespace gateway;

namespace {

std::expected<Config, std::string> parse(std::vector<std::string_view> arguments,
                                         std::map<std::string, const char*> environment = {}) {
    return Config::parse(arguments, [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second;
    });
}

}  // namespace

TEST_CASE("unset settings have the contract's defaults") {
    const auto config = parse({});
    REQUIRE(config);
    CHECK(config->port == 3000);
    CHECK(config->host == "127.0.0.1");
    CHECK(config->inference_authority == "127.0.0.1:9000");
    CHECK(config->flush_interval == milliseconds(1000));
    CHECK(config->workers() >= 1);
}

TEST_CASE("flags override the environment, with a space and with an equals sign") {
    const auto config = parse({"--port", "1", "--flush-interval-ms=50"},
                              {{"PORT", "2"}, {"FLUSH_INTERVAL_MS", "60"}, {"CPU_PASSES", "3"}});
    REQUIRE(config);
    CHECK(config->port == 1);
    CHECK(config->flush_interval == milliseconds(50));
    CHECK(config->cpu_passes == 3);
}

TEST_CASE("an invalid value is rejected and its setting is named") {
    for (const auto [flag, value] :
         std::initializer_list<std::pair<std::string_view, std::string_view>>{{"--port", "65536"},
                                                                              {"--port", ""},
                                                                              {"--port", "-1"},
                                                                              {"--port", " 1"},
                                                                              {"--host", "localhost"},
                                                                              {"--cpu-passes", "0"},
                                                                              {"--model-delay-ms", "75ms"},
                                                                              {"--flush-interval-ms", "0"},
                                                                              {"--flush-phase-jitter-ms", "60001"},
                                                                              {"--inference-timeout-ms", "1e3"},
                                                                              {"--inference-http-clients", "0"},
                                                                              {"--worker-threads", "many"},
                                                                              {"--max-buffered-frames", "0"},
                                                                              {"--max-connections", "1.5"}}) {
        const auto config = parse({flag, value});
        REQUIRE_FALSE(config);
        CHECK(config.error().contains(flag));
        CHECK(config.error().contains(value));
    }
    const auto variable = parse({}, {{"METRICS_PORT", "x"}});
    REQUIRE_FALSE(variable);
    CHECK(variable.error().contains("METRICS_PORT"));
}

TEST_CASE("an unknown argument and a flag without a value are rejected") {
    CHECK_FALSE(parse({"--prot", "1"}));
    CHECK_FALSE(parse({"1"}));
    CHECK_FALSE(parse({"--port"}));
}

TEST_CASE("the inference URL must have a host and a port") {
    for (const std::string_view good : {"http://127.0.0.1:9000", "http://inference-sim:80/", "http://[::1]:9000"}) {
        CHECK(parse({"--inference-url", good}));
    }
    CHECK(parse({"--inference-url", "http://[::1]:9000"})->inference_host == "::1");
    for (const std::string_view bad : {"https://a:1", "http://a", "http://a:0", "http://a:x", "http://:1",
                                       "http://a:1/b", "http://u@a:1", "http://::1:9000", ""}) {
        CHECK_FALSE(parse({"--inference-url", bad}));
    }
}
