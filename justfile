# Every command that people and CI run. `./justw` fetches the pinned `just` where it is missing.
set shell := ["bash", "-euo", "pipefail", "-c"]

python := ".venv/bin/python"
tools := justfile_directory() / ".tools"
export PATH := tools / "bin:" + env("PATH")
# The interpreter that the binding is built and tested with.
export PYO3_PYTHON := justfile_directory() / python

# list the recipes
default:
    @just --list --unsorted

# climb a plan (plans/NAME.yaml) or a service with the default plan, and say where the report is
bench-ladder NAME="quick" *OPTIONS: _bench-build
    @tools/bench-ladder "{{NAME}}" {{OPTIONS}}

# everything that needs no cluster, in the order in which a mistake shows soonest
test: lint generated deny unit python-test self-test docs-test fuzz
    @echo "all checks passed"

# everything about clusters: ladder's part for them, the chart, a real Kubernetes on this machine (root, Debian)
cluster-test: kubernetes-test chart-check e2e

# format and lint, warnings as errors
lint: _python-env
    cargo fmt --all --check
    cargo clippy --workspace --exclude operator-kubernetes --all-targets --locked -- -D warnings
    {{python}} -m ruff format --check .
    {{python}} -m ruff check .
    {{python}} -m mypy
    cd analysis && ../{{python}} -m mypy

# licences, bans and sources of all crates (advisories: in the workflow, see `deny-advisories`)
deny: _cargo-deny
    cargo deny --locked check bans licenses sources

# known vulnerabilities; fetches the advisory database
deny-advisories: _cargo-deny
    cargo deny --locked check advisories

# Rust: units, properties, in-process and real-process tests
unit:
    cargo test --locked

# Python: the binding, the wse_server package against real clients, the reference, the analysis
python-test: _bench-build _reference-env
    LD_LIBRARY_PATH="$({{python}} -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')" cargo test --locked -p wse-binding
    {{python}} -m pytest

# the harness measured against services with a known delay, flaw or ceiling
self-test: _bench-build
    cargo test --locked --release -p operator --features self-test --test self_test_harness -- --test-threads 1

# the examples in the docs
docs-test: _bench-build
    {{python}} -m pytest -q docs -m "not cluster"

# every fuzz target, two minutes together
fuzz SECONDS="120": _cargo-fuzz
    tools/fuzz {{SECONDS}}

# write the report of a bundle again
analyze-results BUNDLE: _python-env
    {{python}} -m ws_ladder_analysis {{BUNDLE}}

# put the overview and a chart of a bundle into the README
readme-results BUNDLE CHART="throughput-batch-wse-server-outcomes.png":
    python3 tools/readme_results.py results {{BUNDLE}} {{CHART}}

# put the comparison with the reference into the README, from a bundle of plans/reference.yaml
readme-comparison BUNDLE:
    python3 tools/readme_results.py comparison {{BUNDLE}}

# microbenchmarks beside the code
microbench *FILTER:
    cargo bench --locked -p wse-engine -p loadgen-core -- {{FILTER}}

# check every pin of versions.lock.toml and say how to mend it
doctor:
    python3 tools/doctor.py

# write what is generated from the code: the JSON Schemas, and the plan's into the chart's
generate:
    cargo run --quiet --locked -p bench-format --bin schemas -- docs/schemas
    python3 tools/values_schema.py

# fail if generated files are not committed
generated: generate
    git diff --exit-code -- docs/schemas charts/ws-ladder/values.schema.json

# ladder's part for clusters: lint, units, its commands in the docs
[group("kubernetes")]
kubernetes-test: _python-env _cluster-programs
    cargo clippy --locked -p operator-kubernetes --all-targets -- -D warnings
    cargo test --locked -p operator-kubernetes
    {{python}} -m pytest -q docs -m cluster

# the Helm chart: lint, rendering, schemas, unit tests, docs, plans; minutes the first time, to build its tools with Go
[group("chart")]
chart-check: _python-env _chart-tools
    cargo build --locked --quiet -p operator
    python3 tools/values_schema.py && git diff --exit-code -- charts/ws-ladder/values.schema.json
    tools/chart-check

# the Helm chart as it is published: chart-package 0.1.0 OWNER FOLDER
[group("chart")]
chart-package VERSION OWNER FOLDER: _chart-tools
    tools/chart-package {{VERSION}} {{OWNER}} {{FOLDER}}

# the Helm chart's unit tests alone
[group("chart")]
chart-test *OPTIONS: _chart-tools
    helm-unittest --strict {{OPTIONS}} charts/ws-ladder

# write the chart's README.md from its values
[group("chart")]
chart-docs: _chart-tools
    helm-docs --chart-search-root charts/ws-ladder --log-level warning

# install the chart into kubectl's current cluster (values files and helm's options may follow); it loads nothing yet
[group("kubernetes")]
k8s-install *VALUES: _kubernetes-build
    tools/k8s install {{VALUES}}

# climb the chart's plan in kubectl's current cluster with a new run.id, and fetch its bundle with the report
[group("kubernetes")]
bench-ladder-k8s *VALUES: _kubernetes-build
    tools/k8s bench {{VALUES}}

# optimised for publishing: whole-program link-time optimisation
dist:
    cargo build --locked --profile dist -p wse-bench -p operator -p operator-kubernetes

# build the images with buildah, podman or docker; OPTIONS: see tools/images
[group("kubernetes")]
images *OPTIONS:
    @tools/images {{OPTIONS}}

# a cluster for the end-to-end test: that of E2E_KUBECONFIG, else one of its own on this machine
[group("kubernetes")]
e2e-up:
    @e2e/up

# the end-to-end test on a cluster, which it starts and ends unless one runs; OPTIONS go to pytest
[group("kubernetes")]
e2e *OPTIONS: _python-env _cluster-programs
    @tools/go-tool helm helm.sh/helm/v4/cmd/helm
    @tools/go-tool helm3 helm.sh/helm/v3/cmd/helm
    @e2e/run {{OPTIONS}}

# end the cluster that e2e-up started
[group("kubernetes")]
e2e-down:
    @e2e/down

# forget everything built or fetched into this checkout
clean: e2e-down
    rm -rf target .venv .tools fuzz/target

# what a ladder needs: release binaries, the Python environment, the engine's extension module
_bench-build: _python-env
    cargo build --locked --release --quiet -p operator -p wse-bench -p self-test-service
    tools/build-extension

# what commands on a cluster need: ladder with its part for clusters, Helm, the Python environment
_kubernetes-build: _python-env _chart-tools _cluster-programs

# what runs in a cluster and speaks to one, as one set: another set would have other features, and be compiled again
_cluster-programs:
    cargo build --locked --release --quiet -p operator -p operator-kubernetes -p wse-bench

_python-env:
    @tools/python-env .venv 3.11 analysis/requirements.txt analysis/requirements-test.txt services/wse-server/requirements-test.txt

_reference-env:
    @tools/python-env .tools/reference 3.12 services/wse-reference/requirements.txt

_cargo-deny:
    @tools/cargo-tool cargo-deny

_cargo-fuzz:
    @tools/cargo-tool cargo-fuzz

_chart-tools:
    @tools/chart-tools
