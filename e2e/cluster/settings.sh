# Settings shared by all scripts of the cluster: folders, names, addresses. Sourced, never run.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cluster=$root/e2e/cluster
# Built once for each set of pins and kept until `just clean`.
pins=$(cat "$cluster"/{kube,local-path}/go.{mod,sum} "$cluster"/kube/cmd/*/main.go "$cluster"/{build,archives} | sha256sum | cut -c1-12)
cache=$root/.tools/cluster/$pins
bin=$cache/bin
archives=$cache/images
# Created by start, removed entirely by stop.
state=$root/.tools/cluster/state
pki=$state/pki
log=$state/log
kubeconfig=$pki/admin.kubeconfig

# Two checkouts may run a cluster each, so names of objects on the machine contain the checkout's number.
number=$((16#$(printf %s "$root" | sha256sum | cut -c1-2)))
link=wsl-e2e-$number
cgroup=ws-ladder-e2e-$number
node=ws-ladder-node
# The machine's and the node's address of the link; all other addresses exist only in the node's network namespace.
host_address=10.213.$number.1
node_address=10.213.$number.2
pod_cidr=10.214.0.0/16
pod_gateway=10.214.0.1
service_cidr=10.215.0.0/16
api_service=10.215.0.1
dns_service=10.215.0.10

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$@"; exit 1; }

# Prints the process id of the node's first process if it is alive; the start time is compared because ids are reused.
node_pid() {
    local pid started
    read -r pid started 2>/dev/null <"$state/pid" || return 1
    [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}

# Field 22 of stat, counted after the command's name, which may contain spaces.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# wait_for SECONDS CONDITION COMMAND...: waits until the command succeeds, or fails after that time.
wait_for() {
    local deadline=$((SECONDS + $1)) condition=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { say "timed out waiting for $condition"; return 1; }
        [ -z "${give_up:-}" ] || ! $give_up >/dev/null || return 1
        sleep 0.2
    done
}
