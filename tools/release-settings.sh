# What the scripts of a release share: where it goes, how it is signed. Sourced, never run. The workflow and the rehearsal set:
#   RELEASE_REGISTRY    host and owner, such as ghcr.io/OWNER: images go below /ws-ladder/, the chart below /charts/
#   RELEASE_FOLDER      what one script leaves for the next (default: target/release-VERSION)
#   RELEASE_PROFILE     profile of cargo (default: dist)
#   RELEASE_KEY         private key (cosign's); without it signatures are keyless, with the identity of the workflow
#   RELEASE_PLAIN_HTTP  not empty: the registry speaks plain HTTP
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
folder=${RELEASE_FOLDER:-$root/target/release-$version}
profile=${RELEASE_PROFILE:-dist}
platforms=(linux/amd64 linux/arm64)
declare -A triples=([linux/amd64]=x86_64-unknown-linux-gnu [linux/arm64]=aarch64-unknown-linux-gnu)
here=$(for each in "${platforms[@]}"; do [ "${triples[$each]%%-*}" != "$(uname -m)" ] || echo "$each"; done)
bin=$root/.tools/bin
mkdir -p "$folder"

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$@"; exit 1; }
registry() { echo "${RELEASE_REGISTRY:?"set RELEASE_REGISTRY, such as ghcr.io/somebody"}"; }
images() { echo "$(registry)/ws-ladder"; }
chart() { echo "$(registry)/charts/ws-ladder"; }
known_platform() { [ -n "${triples[${1:-}]:-}" ] || die "the platform is linux/amd64 or linux/arm64, not '${1:-}'"; }
