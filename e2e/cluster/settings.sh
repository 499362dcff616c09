# Settings shared by all scripts of the cluster: folders, names, addresses. Sourced, never run.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cluster=$root/e2e/cluster
# Built once for each set of pins and kept until `just clean`.
pins=$(cat "$cluster"/kube/go.{mod,sum} "$cluster"/kube/cmd/*/main.go "$cluster"/{build,archives} | sha256sum | cut -c1-12)
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
# Of this node. Each node has its own part, because a pod looks for its whole network on its own bridge.
node_cidr=10.214.1.0/24
pod_gateway=10.214.1.1
service_cidr=10.215.0.0/16
api_service=10.215.0.1
dns_service=10.215.0.10

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$@"; exit 1; }

# Prints the process id of the node's first process if it is alive; the start time is compared because ids are reused.
node_pid() { pid_in "$state/pid"; }

# The same for any file with a process id and its start time.
pid_in() {
    local pid started
    read -r pid started 2>/dev/null <"$1" || return 1
    [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}

# name_further K: sets folder, name, addresses and cgroup of node K (2 to 60), which hangs on the first node by a link of its own.
name_further() {
    [[ $1 =~ ^[0-9]+$ ]] && [ "$1" -ge 2 ] && [ "$1" -le 60 ] || die "a further node has a number from 2 to 60, not '$1'"
    further=$state/nodes/$1
    further_node=$node-$1
    further_link=node-$1
    further_cgroup=$cgroup/node-$1
    further_cidr=10.214.$1.0/24
    further_gateway=10.214.$1.1
    hub_address=${host_address%.*}.$((4 * $1 + 1))
    further_address=${host_address%.*}.$((4 * $1 + 2))
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
