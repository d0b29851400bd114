#!/usr/bin/env bash
# Installs and builds what the end-to-end tests run against, and nothing that is there already.
#
#   tests/e2e/set-up.sh           do it; one line a step
#   tests/e2e/set-up.sh --where   only print the directory of the built programs
#
# Debian packages are installed with apt-get. The Kubernetes programs are those that components/tools.go names, in the
# release of components/go.mod, built from source into $GAS_E2E_CACHE (default: gas-e2e in the user's cache directory),
# in a subdirectory for exactly these sources and this Go. A program appears there only when it is complete.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
components=$here/components
cache=${GAS_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gas-e2e}

# Each line: a program that must be found, and the Debian package that has it.
debian_programs=(
    "etcd etcd-server"
    "containerd containerd"
    "runc runc"
    "busybox busybox-static"
    "nsenter util-linux"
)

say() { printf 'e2e set-up: %s\n' "$*"; }
fail() { printf 'e2e set-up: %s\n' "$*" >&2; exit 1; }

# run_step SENTENCE COMMAND…: runs the command; its output is shown only when it fails.
run_step() {
    local sentence=$1 output=$cache/step.log started=$SECONDS
    shift
    printf 'e2e set-up: %s … ' "$sentence"
    if "$@" >"$output" 2>&1 </dev/null; then
        printf 'done in %s s\n' $((SECONDS - started))
    else
        printf 'FAILED after %s s:\n' $((SECONDS - started))
        cat "$output" >&2
        return 1
    fi
}

# at_least WANTED FOUND: whether the version FOUND is WANTED or later.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_packages() {
    run_step "fetching Debian's package lists" apt-get update
    run_step "installing the Debian package(s) $*" \
        env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
}

install_missing_packages() {
    local missing=() line
    for line in "${debian_programs[@]}"; do
        command -v "${line% *}" >/dev/null || missing+=("${line#* }")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    can_install || fail "these programs are missing and only root can install them with apt-get; as root run:" \
        "apt-get install ${missing[*]} (elsewhere than on Debian: what has the same programs)"
    install_packages "${missing[@]}"
}

# Go itself: the go directive of go.mod says which version suffices. Debian's own is taken only when it does.
require_go() {
    local wanted found offered
    wanted=$(sed -n 's/^go //p' "$components/go.mod")
    if command -v go >/dev/null; then
        found=$(go env GOVERSION)
        at_least "$wanted" "${found#go}" || fail "Go $wanted or later is needed; $(command -v go) is ${found#go}." \
            "Put a later one first in PATH"
        return
    fi
    if can_install; then
        run_step "Go is missing; fetching Debian's package lists" apt-get update
        offered=$(apt-cache policy golang-go | sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}\([0-9.]*\).*/\2/p')
        if [ -n "$offered" ] && at_least "$wanted" "$offered"; then
            install_packages golang-go
            return
        fi
        fail "Go $wanted or later is needed and none is in PATH; Debian's package golang-go is ${offered:-not on offer}." \
            "Install Go from its own site or a backport and put it in PATH"
    fi
    fail "Go $wanted or later is needed and none is in PATH. Install it and put it in PATH"
}

go_in_components() { (cd "$components" && GOTOOLCHAIN=local GOWORK=off go "$@"); }

binaries_directory() {
    local key
    key=$({ cat "$components/go.sum" "$components/tools.go"; GOTOOLCHAIN=local go env GOVERSION GOARCH; } | sha256sum)
    printf '%s/%s\n' "$cache" "${key:0:16}"
}

kubernetes_programs() { sed -n 's|^\t_ "k8s.io/kubernetes/cmd/\(.*\)"$|\1|p' "$components/tools.go"; }

# Without the version flags the programs call themselves v0.0.0-master.
build_program() {
    local program=$1 directory=$2 release=$3 version=k8s.io/component-base/version major minor
    IFS=. read -r major minor _ <<<"${release#v}"
    run_step "building $program $release (minutes when Go's build cache is empty)" \
        go_in_components build -trimpath -buildvcs=false \
        -ldflags "-s -w -X $version.gitVersion=$release -X $version.gitMajor=$major -X $version.gitMinor=$minor" \
        -o "$directory/$program.unfinished" "k8s.io/kubernetes/cmd/$program"
    mv "$directory/$program.unfinished" "$directory/$program"
}

build_missing_programs() {
    local directory=$1 missing=() program release
    for program in $(kubernetes_programs); do
        [ -x "$directory/$program" ] || missing+=("$program")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    release=$(go_in_components list -m -f '{{.Version}}' k8s.io/kubernetes)
    for program in "${missing[@]}"; do
        build_program "$program" "$directory" "$release"
    done
}

case ${1-} in
    "") ;;
    --where)
        command -v go >/dev/null || fail "Go is missing; tests/e2e/set-up.sh says which version is needed"
        binaries_directory
        exit ;;
    *) fail "unknown argument $1; known: --where" ;;
esac

# One set-up at a time: a second one waits here, and then finds everything done.
mkdir -p "$cache"
exec 9>"$cache/lock"
if ! flock --nonblock 9; then
    say "another set-up is at work in $cache; waiting for it"
    flock 9
fi
install_missing_packages
require_go
directory=$(binaries_directory)
mkdir -p "$directory"
build_missing_programs "$directory"
say "ready: $(kubernetes_programs | paste -sd' ') in $directory"
