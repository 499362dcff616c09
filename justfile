# Every command that people and CI run. `./justw` fetches the pinned `just` where it is missing.
set shell := ["bash", "-euo", "pipefail", "-c"]
# Options reach a script as they were given, quotes and all: "$@".
set positional-arguments

python := ".venv/bin/python"
tools := justfile_directory() / ".tools"
export PATH := tools / "bin:" + env("PATH")
# The interpreter that the binding is built and tested with.
export PYO3_PYTHON := justfile_directory() / python
# Prints where its library is, which the binding's own tests are linked with.
libpython := python + " -c 'import sysconfig; print(sysconfig.get_config_var(\"LIBDIR\"))'"

# What ladder needs on one machine, and what clusters need. Another set has other features, so crates are compiled again:
# with BUILD_SET=all, where both are wanted in turn, they are one set.
common := "-p operator -p wse-bench -p stt-bench -p inference-sim -p rust-axum -p rust-axum-plain -p rust-sync"
machine := common + " -p self-test-service -p floor"
cluster := common + " -p operator-kubernetes"
one_set := if env("BUILD_SET", "") == "all" { "yes" } else { "" }
machine_programs := machine + if one_set != "" { " -p operator-kubernetes" } else { "" }
cluster_programs := if one_set != "" { machine_programs } else { cluster }
generated_types := "loadgen/bench-format/python/bench_format/schemas.py loadgen/typescript/src/schemas.ts"
# What is linted and tested together: ladder's part for clusters only in one set with the rest. Whatever is built in the dev
# profile is built in this set, because with another one the dependencies have other features and are compiled again.
checked := "--workspace" + if one_set != "" { "" } else { " --exclude operator-kubernetes" }

# list the recipes
default:
    @just --list --unsorted

# climb a plan (plans/NAME.yaml), or a service with its default plan (one that runs already: NAME ws://HOST:PORT/PATH)
bench-ladder NAME="quick" *OPTIONS: _bench-build
    @tools/bench-ladder "$@"

# ours beside the reference and beside the floor that the kernel alone costs: target/bench/summary.json, in 25 minutes
bench *OPTIONS: _bench-build _reference-env
    @{{python}} tools/bench.py "$@"

# the Python utilities in Rust beside the same in plain Python, with intervals: target/bench/components.json, in a minute
bench-components *OPTIONS: _extension
    @{{python}} tools/bench_components.py "$@"

# search the largest load that meets the objectives: bench-search rust-sync --cpus 0.05 (a plan, or a service)
bench-search NAME="stt-search" *OPTIONS: _bench-build
    target/release/ladder search "{{NAME}}" {{OPTIONS}}

# everything that needs no cluster, in the order in which a mistake shows soonest
test: lint generated deny unit python-test typescript-test self-test gateways docs-test fuzz
    @echo "all checks passed"

# everything about clusters and containers: ladder's part for clusters, the chart, every image, a real Kubernetes on this machine (root, Debian)
cluster-test: kubernetes-test chart-check compose-test e2e

# format and lint, warnings as errors
lint: _rust-lint
    {{python}} -m ruff format --check .
    {{python}} -m ruff check .
    {{python}} -m mypy
    cd analysis && ../{{python}} -m mypy
    PYTHONPATH=loadgen/python .venv/bin/lint-imports --no-cache --no-logo
    {{python}} tools/circles.py
    {{python}} tools/plain_words.py

# licences, bans and sources of all crates (advisories: in the workflow, see `deny-advisories`)
deny: _cargo-deny
    cargo deny --locked check bans licenses sources

# known vulnerabilities; fetches the advisory database
deny-advisories: _cargo-deny
    cargo deny --locked check advisories

# Rust: units, properties, in-process and real-process tests
unit: _python-env _redis-env
    LD_LIBRARY_PATH="$({{libpython}})" cargo test --locked {{checked}}

# Python: the wse_server package against real clients, the reference, the analysis
python-test: _bench-build _reference-env _redis-env
    cargo build --locked --quiet {{checked}} --example search_decisions
    {{python}} -m pytest

# TypeScript: formatting, lint, types, and the Node.js client against real services
typescript-test: _bench-build _node-env
    cd loadgen/typescript && npm run --silent check && npm test --silent

# the harness measured against services with a known delay, flaw or ceiling
self-test: _bench-build _node-env
    LADDER_BIN="$PWD/target/release" cargo test --locked {{checked}} --test self_test_harness -- --test-threads 1

# gateways against their contract, case by case: all of the registry, or those that are named (docs/CONFORMANCE.md)
conformance *SERVICES: _bench-build
    @python3 tools/service_tasks.py conformance "$@"

# the same, kept as services/NAME/conformance.json: until what it depends on changes, CI runs the level `core`
conformance-record +SERVICES: _bench-build
    @python3 tools/service_tasks.py record "$@"

# every gateway whose toolchain can be had: lint, unit tests, its contract
gateways: _bench-build
    @python3 tools/service_tasks.py gateways

# build services with the toolchain of each (services/services.toml): all of them, or those that are named
build *SERVICES: _python-env
    @python3 tools/service_tasks.py build "$@"

# the unit tests of services
test-service *SERVICES: _python-env
    @python3 tools/service_tasks.py test "$@"

# formatting, lint and types of services
lint-service *SERVICES: _python-env
    @python3 tools/service_tasks.py lint "$@"

# a new gateway in the manner of the one in that language: go, node, typescript, python, java, cpp, elixir, rust
new-gateway LANGUAGE NAME:
    @tools/new-gateway "{{LANGUAGE}}" "{{NAME}}"

# the examples in the docs
docs-test: _bench-build _node-env
    {{python}} -m pytest -q docs -m "not cluster"

# every fuzz target, a minute together
fuzz SECONDS="60": _cargo-fuzz
    tools/fuzz {{SECONDS}}

# write the report of a bundle again
analyze-results BUNDLE: _python-env
    {{python}} -m ws_ladder_analysis {{BUNDLE}}

# clients side by side, from one bundle of each, as Markdown
compare-clients +BUNDLES: _python-env
    @{{python}} -m ws_ladder_analysis clients "$@"

# put the overview and a chart of a bundle into docs/RESULTS.md
readme-results BUNDLE CHART="throughput-batch-wse-server-outcomes.png":
    {{python}} tools/readme_results.py results {{BUNDLE}} {{CHART}}

# put the comparison with the reference into docs/RESULTS.md, from a bundle of plans/reference.yaml
readme-comparison BUNDLE:
    {{python}} tools/readme_results.py comparison {{BUNDLE}}

# put what sessions cost each gateway into docs/RESULTS.md, from a bundle of plans/stt.yaml
readme-sessions BUNDLE:
    {{python}} tools/readme_results.py sessions {{BUNDLE}}

# put the brackets of searches into docs/RESULTS.md, from bundles of plans/stt-search.yaml
readme-capacity *BUNDLES:
    {{python}} tools/readme_results.py capacity {{BUNDLES}}

# put the table of `just bench` into docs/RESULTS.md, from a folder of target/bench
readme-bench *FOLDERS:
    {{python}} tools/readme_results.py bench {{FOLDERS}}

# microbenchmarks beside the code
microbench *FILTER:
    cargo bench --locked -p wse-engine -p loadgen-core -p wse-bench -p inference-sim -- "$@"

# check every pin of versions.lock.toml and say how to mend it
doctor:
    python3 tools/doctor.py

# write what is generated from code and registry: JSON Schemas, the plan's into the chart's, types for Python and TypeScript; fuzz targets' seeds; gateways in chart, README and docs/RESULTS.md
generate:
    cargo build --quiet --locked {{checked}} --bin schemas
    target/debug/schemas docs/schemas
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

# ladder's part for clusters: lint, units, its commands in the docs
[group("kubernetes")]
kubernetes-test: _python-env _cluster-programs
    {{ if one_set != "" { "# its lint and units ran with the rest" } else { just_executable() + " _kubernetes-unit" } }}
    {{python}} -m pytest -q docs -m cluster

_kubernetes-unit:
    cargo clippy --locked -p operator-kubernetes --all-targets -- -D warnings
    cargo test --locked -p operator-kubernetes

# the Helm chart: lint, rendering, schemas, unit tests, docs, plans; minutes the first time, to build its tools with Go
[group("chart")]
chart-check: _python-env _chart-tools
    {{ if env("LADDER", "") == "" { "cargo build --locked --quiet -p operator" } else { "true" } }}
    python3 tools/values_schema.py && git diff --exit-code -- charts/ws-ladder/values.schema.json
    tools/chart-check

# the Helm chart as it is published: chart-package 0.1.0 OWNER FOLDER
[group("chart")]
chart-package VERSION OWNER FOLDER: _chart-tools
    tools/chart-package {{VERSION}} {{OWNER}} {{FOLDER}}

# the Helm chart's unit tests alone
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

# optimised for publishing: whole-program link-time optimisation
dist:
    cargo build --locked --profile dist {{cluster}}

# build the images with buildah, podman or docker; OPTIONS: see tools/images
[group("kubernetes")]
images *OPTIONS:
    @tools/images "$@"

# each gateway's image against the core of its contract, and every profile of compose.yaml (root, Debian); OPTIONS go to pytest
[group("kubernetes")]
compose-test *OPTIONS: _bench-build _cluster-programs
    @compose/test "$@"

# a cluster for the end-to-end test: that of E2E_KUBECONFIG, else one of its own on this machine
[group("kubernetes")]
e2e-up:
    @e2e/up

# the end-to-end test on a cluster, which it starts and ends unless one runs; OPTIONS go to pytest
[group("kubernetes")]
e2e *OPTIONS: _cluster-programs _extension
    @tools/go-tool helm helm.sh/helm/v4/cmd/helm
    @tools/go-tool helm3 helm.sh/helm/v3/cmd/helm
    @e2e/run "$@"

# end the cluster that e2e-up started
[group("kubernetes")]
e2e-down:
    @e2e/down

# forget everything built or fetched into this checkout
clean: e2e-down
    rm -rf target .venv .tools fuzz/target

# what a ladder needs: release binaries, the Python environment, the engine's extension module
_bench-build: _python-env _programs
    tools/build-extension

# One set for all that is built in Rust, because with another one the dependencies have other features.
_programs:
    cargo build --locked --release --quiet {{machine_programs}}

# the engine in Python, for what climbs on this machine
_extension: _python-env
    tools/build-extension

# what commands on a cluster need: ladder with its part for clusters, Helm, the Python environment
_kubernetes-build: _python-env _chart-tools _cluster-programs

# what runs in a cluster and speaks to one
_cluster-programs:
    cargo build --locked --release --quiet {{cluster_programs}}

_rust-lint: _python-env
    cargo fmt --all --check
    cargo clippy {{checked}} --all-targets --locked -- -D warnings
    # `--all-targets` leaves it out, because it is no test that runs with the others.
    cargo clippy {{checked}} --test self_test_harness --locked -- -D warnings

# What the tests of CI need, built and fetched side by side before any of them runs: most of it leaves a CPU idle at times,
# and tests that want a quiet machine have it afterwards.
[parallel]
_ahead: _ahead-rust _ahead-debian _ahead-fuzz _cargo-deny _node-env _reference-env

_ahead-rust: _rust-lint _bench-build
    cargo test --locked --quiet {{checked}} --no-run

# One after the other, because apt-get waits for nobody.
_ahead-debian: _redis-env
    e2e/cluster/packages
    python3 tools/service_tasks.py toolchains
    @{{just_executable()}} _ahead-builds

[parallel]
_ahead-builds: _ahead-cluster _ahead-gateways

# Those in Rust are of the workspace, and its build is under way.
_ahead-gateways:
    python3 tools/service_tasks.py build --foreign

_ahead-cluster:
    e2e/cluster/build
    @{{just_executable()}} _chart-tools

_ahead-fuzz: _cargo-fuzz
    tools/fuzz 0

_python-env:
    @tools/python-env .venv 3.11 analysis/requirements.txt analysis/requirements-test.txt loadgen/python/requirements.txt \
        services/wse-server/requirements-test.txt compose/requirements.txt

_reference-env:
    @tools/python-env .tools/reference 3.12 services/wse-reference/requirements.txt

_node-env:
    @tools/node-env loadgen/typescript

_redis-env:
    @tools/redis-env

_cargo-deny:
    @tools/cargo-tool cargo-deny

_cargo-fuzz:
    @tools/cargo-tool cargo-fuzz

_chart-tools:
    @tools/chart-tools
