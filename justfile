# All commands for users and CI. `./justw` fetches the pinned `just` if it is missing.
set shell := ["bash", "-euo", "pipefail", "-c"]
# Passes options to scripts unchanged, including quotes: "$@".
set positional-arguments

python := ".venv/bin/python"
tools := justfile_directory() / ".tools"
export PATH := tools / "bin:" + env("PATH")
# The interpreter that builds and tests the binding.
export PYO3_PYTHON := justfile_directory() / python
# Modules are compiled once: where a machine forbids it, each process compiles them again, six seconds for that of a report.
export PYTHONDONTWRITEBYTECODE := ""
# Prints the folder of the interpreter's library, which the binding's Rust tests are linked with.
libpython := python + " -c 'import sysconfig; print(sysconfig.get_config_var(\"LIBDIR\"))'"

# Packages that ladder needs on one machine, and those for clusters. Each set enables other features of dependencies, which
# are then compiled again; with BUILD_SET=all both are one set, for machines that build both in turn.
common := "-p operator -p wse-bench -p ws-bench -p stt-bench -p inference-sim -p rust-axum -p rust-axum-plain -p rust-sync"
machine := common + " -p self-test-service -p floor"
cluster := common + " -p operator-kubernetes"
one_set := if env("BUILD_SET", "") == "all" { "yes" } else { "" }
# With TEST_CONFIG, a file for cargo, tests are compiled by its profile `bench` in the folder of programs, and take the dependencies
# that these were built with. They have the features that tests need, which come with an example.
test_config := env("TEST_CONFIG", "")
test_options := if test_config != "" { " --profile bench --target-dir target/tests --config " + test_config } else { "" }
# The folder of the programs that are built with tests.
export TESTS_BUILT := if test_config != "" { "target/tests/release" } else { "target/debug" }
# Where tests are all that programs are for, the extension is built with them (tools/cargo-for-maturin).
export ALL_PROGRAMS := if test_config != "" { all_programs } else { "" }
all_programs := if test_config != "" { "--workspace --bins --example search_decisions" } else { machine + " -p operator-kubernetes" }
machine_programs := if one_set != "" { all_programs } else { machine }
cluster_programs := if one_set != "" { all_programs } else { cluster }
# With SERVICES_BUILT programs are built, too: cargo would wait here for a lock that it holds elsewhere while it compiles tests.
build_programs := if env("SERVICES_BUILT", "") != "" { "true" } else { "cargo build --locked --release --quiet" }
generated_types := "loadgen/bench-format/python/bench_format/schemas.py loadgen/typescript/src/schemas.ts"
# Packages that are linted and tested together; ladder's part for clusters only with BUILD_SET=all. Everything in the tests'
# profile is built with this set, because another set would compile the dependencies again with other features.
checked := "--workspace" + test_options + if one_set != "" { "" } else { " --exclude operator-kubernetes" }
# Where clippy compiles the tests (tools/clippy-compiler), building them is their lint.
compiled_by_clippy := if env("RUSTC_WORKSPACE_WRAPPER", "") =~ 'clippy-compiler$' { "yes" } else { "" }
clippy := if compiled_by_clippy != "" { "cargo test --quiet --no-run" } else { "cargo clippy" }
denied := if compiled_by_clippy != "" { "" } else { "-- -D warnings" }

# list the recipes
default:
    @just --list --unsorted

# climb a plan (plans/NAME.yaml), or a service's default plan (a running service: NAME ws://HOST:PORT/PATH)
bench-ladder NAME="quick" *OPTIONS: _bench-build
    @tools/bench-ladder "$@"

# measure our engine and generator beside the reference and the kernel's floor: target/bench/summary.json, in an hour and a quarter
bench *OPTIONS: _bench-build _reference-env
    @{{python}} tools/bench.py "$@"

# measure the Rust utilities for Python beside plain Python: target/bench/components.json, in a minute
bench-components *OPTIONS: _extension
    @{{python}} tools/bench_components.py "$@"

# search the load up to which trials meet the objectives: bench-search stt-capacity (a plan, or a service)
bench-search NAME="stt-search" *OPTIONS: _bench-build
    @target/release/ladder search "$@"

# run all checks that need no cluster, those that find mistakes soonest first; from `unit` on they run only when nothing else does
test: lint generated deny _beside unit _league-test self-test
    @echo "all checks passed"

# run all checks of clusters and containers: ladder's part for clusters, the chart, all images, a Kubernetes on this machine (root, Debian)
cluster-test: kubernetes-test chart-check compose-test e2e

# format and lint, warnings as errors
[parallel]
lint: _rust-lint _python-lint

# mypy takes a minute on one CPU, and the last crates of Rust leave one idle for as long.
_python-lint: _python-env
    {{python}} -m ruff format --check .
    {{python}} -m ruff check .
    tools/idle {{python}} -m mypy
    cd analysis && ../tools/idle ../{{python}} -m mypy
    PYTHONPATH=loadgen/python .venv/bin/lint-imports --no-cache --no-logo
    {{python}} tools/circles.py
    {{python}} tools/plain_words.py

# check licences, bans and sources of all crates (advisories: in the workflow, see `deny-advisories`)
deny: _cargo-deny
    cargo deny --locked check bans licenses sources

# check all crates for known vulnerabilities; fetches the advisory database
deny-advisories: _cargo-deny
    cargo deny --locked check advisories

# test Rust: units, properties, in-process and real-process tests
unit: _redis-env _unit-programs
    LD_LIBRARY_PATH="$({{libpython}})" tools/turn alone {{python}} tools/rust_tests.py -- --locked {{checked}}

# test Python: the wse_server package against real clients, the reference, the analysis
python-test: _bench-build _reference-env _redis-env history-env
    cargo build --locked --quiet {{checked}} --example search_decisions --example search_posterior
    {{python}} -m pytest --numprocesses 2 --dist loadfile

# check TypeScript: formatting, lint, types, and the Node.js client against real services
typescript-test: _bench-build _node-env
    cd loadgen/typescript && npm run --silent check && npm test --silent

# test the harness against services with a known delay, fault or ceiling
self-test: _bench-build _node-env _self-test-program
    LADDER_BIN="$PWD/target/release" tools/turn alone cargo test --locked {{checked}} --test self_test_harness -- --test-threads 1

# check presets against servers of other projects, docs/YOUR-SERVICE.md as a reader would follow it, and some servers of the league
presets: _presets _league-test

_presets: _bench-build _preset-servers
    tools/turn shared {{python}} -m pytest -q presets/tests

_league-test: _bench-build _league-ci
    tools/turn alone {{python}} -m pytest -q services/league/tests

# measure servers of other projects in turns, and write docs/LEAGUE.md: two hours, which may be interrupted
league *OPTIONS: _bench-build (league-build)
    @{{python}} tools/league.py run "$@"

# build servers of the league (services/league): all, or those named
league-build *NAMES: _python-env
    @{{python}} tools/league.py build "$@"

# measure load generators of other projects beside ours, in turns, and write docs/LEAGUE.md: forty minutes, which may be interrupted
generators *OPTIONS: _bench-build (generators-build)
    tools/turn alone {{python}} tools/generators.py "$@"

# install load generators of other projects (services/league/generators): all, or those named
generators-build *NAMES: _python-env
    @{{python}} tools/generators.py build "$@"

# start servers of the league and check that each answers every message: all that are built, or those named
league-check *NAMES: _bench-build
    @{{python}} tools/league.py check "$@"

# run the cases of the Autobahn test suite (CPython 2.7) against servers of the league, ours is wse-server-echo, and write docs/LEAGUE.md
autobahn +SERVERS: _python-env
    @{{python}} tools/league_autobahn.py "$@"

# attack services, the simulator and the coordinator; kill processes, fill disks and move clocks while a run goes on
hostile *OPTIONS: _bench-build
    tools/turn shared {{python}} -m pytest -q hostile "$@"

# Both start processes and wait for them: a CPU and a half are idle. Neither judges time, so they run while clusters are tested,
# but after all that compiles: a compiler beside them would be too much.
[parallel]
_processes: _presets hostile

# None of these judges time, and most leave a CPU idle at times, which is enough to build and run the fuzz targets.
[parallel]
_beside: _checked-beside _fuzz-beside

_checked-beside: python-test typescript-test docs-test _unit-programs _self-test-program gateways _processes

# Others may wait for cargo's lock while it fetches, so that isn't idle. The output follows as a whole.
_fuzz-beside: _cargo-fuzz
    cargo +nightly fetch --quiet --locked --manifest-path fuzz/Cargo.toml
    CARGO_TERM_QUIET=true tools/idle tools/fuzz 60

# run the engine's unit tests under ThreadSanitizer (weekly in the workflow; needs nightly with rust-src: an uninstrumented std is reported as racing)
thread-sanitizer:
    cd services/wse-server && RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=../../target/sanitizer \
        cargo +nightly test --locked -Z build-std --target x86_64-unknown-linux-gnu -p wse-engine --lib

# check gateways against their contract, case by case: all of the registry, or those named (docs/CONFORMANCE.md)
conformance *SERVICES: _bench-build
    @python3 tools/service_tasks.py conformance "$@"

# check all cases and record them in services/NAME/conformance.json: until inputs change, CI runs only the level `core`
conformance-record +SERVICES: _bench-build
    @python3 tools/service_tasks.py record "$@"

# check all gateways whose toolchain is available: lint, unit tests, contract
gateways: _bench-build
    @python3 tools/service_tasks.py gateways

# build services with their toolchains (services/services.toml): all, or those named
build *SERVICES: _python-env
    @python3 tools/service_tasks.py build "$@"

# run the unit tests of services
test-service *SERVICES: _python-env
    @python3 tools/service_tasks.py test "$@"

# check formatting, lint and types of services
lint-service *SERVICES: _python-env
    @python3 tools/service_tasks.py lint "$@"

# create a new gateway from the existing one in that language: go, node, typescript, python, java, cpp, elixir, rust
new-gateway LANGUAGE NAME:
    @tools/new-gateway "$@"

# test the examples in the docs
docs-test: _bench-build _node-env
    {{python}} -m pytest -q docs -m "not cluster"

# run all fuzz targets, one minute in total
fuzz SECONDS="60": _cargo-fuzz
    tools/fuzz "$1"

# write the report of a bundle again
analyze-results BUNDLE: _python-env
    {{python}} -m ws_ladder_analysis "$1"

# make the environment of the second detector of change points, which `ladder history` runs
history-env:
    @tools/python-env .tools/otava 3.11 analysis/otava/requirements.txt

# print clients side by side as Markdown, from one bundle of each
compare-clients +BUNDLES: _python-env
    @{{python}} -m ws_ladder_analysis clients "$@"

# measure what README.md and docs/RESULTS.md publish, or only some parts of it, and write it there: nine hours, which may be interrupted
results *OPTIONS: _bench-build _reference-env
    {{python}} tools/measure_results.py "$@"

# run the microbenchmarks beside the code
microbench *FILTER:
    cargo bench --locked -p wse-engine -p loadgen-core -p wse-bench -p inference-sim -- "$@"

# check all pins of versions.lock.toml and print how to fix them
doctor:
    python3 tools/doctor.py

# write all generated files: JSON Schemas, the chart's copy of the plan's, types for Python and TypeScript, fuzz seeds, gateways in chart, README and docs/RESULTS.md
generate:
    cargo build --quiet --locked {{checked}} --bin schemas
    "$TESTS_BUILT/schemas" docs/schemas
    python3 tools/values_schema.py
    python3 tools/format_types.py
    python3 fuzz/make_seeds.py
    python3 tools/values_services.py
    python3 tools/service_list.py
    python3 tools/readme_highlights.py

# fail if generated files are not committed
generated: generate
    git diff --exit-code -- docs/schemas charts/ws-ladder/values.schema.json charts/ws-ladder/values.yaml README.md docs/RESULTS.md \
        {{generated_types}} fuzz/seeds

# test ladder's part for clusters: lint, unit tests, its commands in the docs
[group("kubernetes")]
kubernetes-test: _python-env _cluster-programs
    {{ if one_set != "" { "# its lint and units ran with the rest" } else { just_executable() + " _kubernetes-unit" } }}
    {{python}} -m pytest -q docs -m cluster

_kubernetes-unit:
    cargo clippy --locked -p operator-kubernetes --all-targets -- -D warnings
    cargo test --locked -p operator-kubernetes

# check the Helm chart: lint, rendering, schemas, unit tests, docs, plans; takes minutes the first time, to build its tools
[group("chart")]
chart-check: _python-env _chart-tools
    {{ if env("LADDER", "") == "" { "cargo build --locked --quiet -p operator" } else { "true" } }}
    python3 tools/values_schema.py && git diff --exit-code -- charts/ws-ladder/values.schema.json
    tools/chart-check

# package the Helm chart for publishing: chart-package 0.1.0 ghcr.io/OWNER FOLDER
[group("chart")]
chart-package VERSION REGISTRY FOLDER: _chart-tools
    tools/chart-package "$@"

# run only the Helm chart's unit tests
[group("chart")]
chart-test *OPTIONS: _chart-tools
    helm-unittest --strict "$@" charts/ws-ladder

# write the chart's README.md from its values
[group("chart")]
chart-docs: _chart-tools
    helm-docs --chart-search-root charts/ws-ladder --log-level warning

# build this checkout's images, bring them to kubectl's current cluster and install the chart there (values files and helm's options may follow)
[group("kubernetes")]
k8s-install *VALUES: _kubernetes-build
    tools/k8s install "$@"

# climb the chart's plan in kubectl's current cluster with a new run.id, and fetch its bundle with the report
[group("kubernetes")]
bench-ladder-k8s *VALUES: _kubernetes-build
    tools/k8s bench "$@"

# build the programs for publishing, with whole-program link-time optimisation; OPTIONS go to cargo
dist *OPTIONS:
    cargo build --locked --profile dist {{cluster}} "$@"

# rehearse a release (docs/RELEASE.md): build, push to a registry on this machine, sign, verify, install from it into an empty cluster, climb
[group("release")]
release-rehearsal: _python-env
    @tools/turn shared tools/release-rehearsal

# build the images with buildah, podman or docker; OPTIONS: see tools/images
[group("kubernetes")]
images *OPTIONS:
    @tools/images "$@"

# check each gateway's image at the level `core`, and all profiles of compose.yaml (root, Debian); OPTIONS go to pytest
[group("kubernetes")]
compose-test *OPTIONS: _bench-build _cluster-programs
    @tools/turn shared compose/test "$@"

# start a cluster for the end-to-end test on this machine, or use that of E2E_KUBECONFIG
[group("kubernetes")]
e2e-up:
    @e2e/up

# run the end-to-end test without its longest parts, and start and stop a cluster for it unless one is running; OPTIONS go to pytest
[group("kubernetes")]
e2e *OPTIONS: _e2e-programs
    @echo "tests marked 'long' are left out; ./justw e2e-all runs them, too" >&2
    @tools/turn shared e2e/run -m "not long" "$@"

# run the whole end-to-end test, as the GitHub workflow does
[group("kubernetes")]
e2e-all *OPTIONS: _e2e-programs
    @tools/turn shared e2e/run "$@"

_e2e-programs: _cluster-programs _extension
    @tools/go-tool helm helm.sh/helm/v4/cmd/helm
    @tools/go-tool helm3 helm.sh/helm/v3/cmd/helm
    @tools/prometheus-env

# stop the cluster that e2e-up started
[group("kubernetes")]
e2e-down:
    @e2e/down

# remove everything built or fetched in this checkout
clean: e2e-down
    rm -rf target .venv .tools fuzz/target

# Tests in Rust are built before they wait for their turn.
_unit-programs: _python-env
    @cargo test --locked --quiet {{checked}} --no-run

# Not part of the default tests.
_self-test-program: _python-env
    @cargo test --locked --quiet {{checked}} --test self_test_harness --no-run

# build what a ladder needs: release binaries, the Python environment, the engine's extension module
_bench-build: _python-env _programs
    @tools/build-extension

# One set of packages for all Rust builds, because another set would compile the dependencies with other features.
_programs:
    @{{build_programs}} {{machine_programs}}

# build the wheel of the engine's package, for images
_wheel: _bench-build
    @tools/build-wheel > /dev/null

# build the engine's extension module, for ladders on this machine
_extension: _python-env
    @tools/build-extension

# build what commands on a cluster need: ladder with its part for clusters, Helm, the Python environment
_kubernetes-build: _python-env _chart-tools _cluster-programs

# build the programs that run in a cluster or control one
_cluster-programs *OPTIONS:
    @{{build_programs}} {{cluster_programs}} "$@"

_rust-lint: _python-env
    cargo fmt --all --check
    {{clippy}} {{checked}} --all-targets --locked {{denied}}
    # `--all-targets` leaves this one out, because it is not part of the default tests.
    {{clippy}} {{checked}} --test self_test_harness --locked {{denied}}

# Builds and fetches in parallel what CI's tests need, before any test runs: most of these steps leave a CPU idle at times,
# and timing-sensitive tests then have a quiet machine. What Rust's tests and the fuzz targets compile is left to their
# recipes: they run beside the tests of clusters, which wait for pods most of the time.
[parallel]
_ahead: _bench-build _wheel _ahead-debian _cargo-fuzz _cargo-deny _node-env _preset-servers _league-ci _reference-env history-env

# One after the other, because apt-get fails while another apt-get holds its lock.
_ahead-debian: _redis-env
    @tools/prometheus-env
    e2e/cluster/packages
    python3 tools/service_tasks.py toolchains
    @{{just_executable()}} _ahead-builds

[parallel]
_ahead-builds: _ahead-cluster _ahead-gateways

# Without those in Rust: they are built with the workspace.
_ahead-gateways:
    python3 tools/service_tasks.py build --foreign

_ahead-cluster:
    e2e/cluster/build
    @{{just_executable()}} _chart-tools

_python-env:
    @tools/python-env .venv 3.11 analysis/requirements.txt analysis/requirements-test.txt loadgen/python/requirements.txt \
        services/wse-server/requirements-test.txt compose/requirements.txt

_reference-env:
    @tools/python-env .tools/reference 3.12 services/wse-reference/requirements.txt

_node-env:
    @tools/node-env loadgen/typescript

_preset-servers:
    @tools/node-env presets/servers

_league-ci: _python-env
    @{{python}} tools/league.py build --ci
    @{{python}} tools/generators.py build --ci

_redis-env:
    @tools/redis-env

_cargo-deny:
    @tools/cargo-tool cargo-deny

_cargo-fuzz:
    @tools/cargo-tool cargo-fuzz

_chart-tools:
    @tools/chart-tools
