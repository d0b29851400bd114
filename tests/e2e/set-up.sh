#!/usr/bin/env bash
# Installs and builds what the end-to-end tests run against, and nothing that is there already.
#
#   tests/e2e/set-up.sh           do it; one line a step
#   tests/e2e/set-up.sh --where   only print the directory where the tests find all of it
#
# Debian packages are installed with apt-get. Every directory components/NAME pins programs in a go.mod of its own:
# those that its tools.go names, in the releases of its go.mod, built from source. Of a component NAME-RELEASE whose
# program is NAME, the program is called NAME-RELEASE. A component with a list `files` in place of tools.go has those
# files of the one module that it requires. The base of the project's image is made with debootstrap, since no registry
# may be within reach.
#
# All of it goes into $GAS_E2E_CACHE (default: gas-e2e in the user's cache directory), each component in a
# subdirectory for exactly these sources and this Go, so that one that changes leaves the others as they are. A
# subdirectory appears only when it is complete.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
components=$here/components
containerfile=$here/../../Containerfile
cache=${GAS_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gas-e2e}

# Each line: a program that must be found, and the Debian package that has it.
debian_programs=(
    "etcd etcd-server"
    "containerd containerd"
    "runc runc"
    "busybox busybox-static"
    "nsenter util-linux"
    "buildah buildah"
    "debootstrap debootstrap"
    "/usr/lib/cni/loopback containernetworking-plugins"
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

# Go itself: the go directives of the components say which version suffices. Debian's own is taken only when it does.
require_go() {
    local wanted found offered
    wanted=$(sed -n 's/^go //p' "$components"/*/go.mod | sort -V | tail -n 1)
    if command -v go >/dev/null; then
        found=$(GOTOOLCHAIN=local go env GOVERSION)
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

component_names() {
    local file
    for file in "$components"/*/go.mod; do
        basename "$(dirname "$file")"
    done
}

go_in() { (cd "$components/$1" && shift && GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=readonly go "$@"); }

packages_of() { sed -n 's|^[[:space:]]*\(import \)\{0,1\}_ "\(.*\)"$|\2|p' "$components/$1/tools.go"; }

key() { sha256sum | cut -c -16; }

component_directory() {
    local sources=$components/$1 contents=tools.go
    [ ! -e "$sources/files" ] || contents=files
    printf '%s/%s-%s\n' "$cache" "$1" "$({ cat "$sources/go.sum" "$sources/$contents"; printf '%s\n' "$go_version"; } | key)"
}

fetch_files() {
    local name=$1 directory=$2 module file
    module=$(sed -n 's/^require \([^ ]*\) \(v.*\)$/\1@\2/p' "$components/$name/go.mod")
    run_step "fetching $module" go_in "$name" mod download "$module"
    while read -r file; do
        install -m 0644 "$(GOTOOLCHAIN=local go env GOMODCACHE)/$module/$file" "$directory"
    done <"$components/$name/files"
}

# build_component NAME DIRECTORY: all of its programs. Without the version flags those of Kubernetes call themselves
# v0.0.0-master; each program takes those flags that it has variables for.
build_component() {
    local name=$1 directory=$2 package program release major minor kubernetes=k8s.io/component-base/version
    local unfinished=$directory.unfinished
    rm -rf "$unfinished"
    mkdir "$unfinished"
    if [ -e "$components/$name/files" ]; then
        fetch_files "$name" "$unfinished"
        mv "$unfinished" "$directory"
        return
    fi
    for package in $(packages_of "$name"); do
        program=$(basename "$package")
        case $name in "$program"-*) program=$name ;; esac
        release=$(go_in "$name" list -f '{{.Module.Version}}' "$package")
        IFS=. read -r major minor _ <<<"${release#v}"
        run_step "building $program $release (minutes when Go's build cache is empty)" \
            go_in "$name" build -trimpath -buildvcs=false -o "$unfinished/$program" -ldflags "-s -w
                -X $kubernetes.gitVersion=$release -X $kubernetes.gitMajor=$major -X $kubernetes.gitMinor=$minor
                -X helm.sh/helm/v3/internal/version.version=$release" "$package"
    done
    mv "$unfinished" "$directory"
}

# The suite of Debian that the Containerfile builds on.
base_suite() { sed -n 's|^FROM docker.io/library/debian:\([a-z]*\)-slim.*|\1|p' "$containerfile" | head -n 1; }

base_archive() { printf '%s/debian-%s-slim-%s.tar\n' "$cache" "$(base_suite)" "$(dpkg --print-architecture)"; }

# What the image debian:SUITE-slim holds, near enough: the minimal system without caches and documentation.
build_base() {
    local suite=$1 archive=$2 root
    root=$(mktemp -d)
    run_step "making the base of the image, Debian $suite (a minute)" debootstrap --variant=minbase "$suite" "$root"
    rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
        "$root"/var/log/* "$root"/usr/share/{doc,man,info,locale}/* "$root"/dev/*
    run_step "packing it" tar --directory "$root" --numeric-owner --create --file "$archive.unfinished" .
    rm -rf "$root"
    mv "$archive.unfinished" "$archive"
}

# Debian's promtool, without the server that comes with it.
fetch_promtool() {
    local aside
    aside=$(mktemp -d)
    run_step "fetching promtool" sh -c 'cd "$1" && apt-get download prometheus && dpkg-deb --extract prometheus_*.deb .' \
        - "$aside"
    mv "$aside/usr/bin/promtool" "$cache/promtool"
    rm -rf "$aside"
}

# Prints a directory with a link to everything that is built: there as soon as anything is.
where_it_is() {
    local name directories=() directory
    for name in $(component_names); do
        directories+=("$(component_directory "$name")")
    done
    directory=$cache/all-$(printf '%s\n' "${directories[@]}" "$(base_archive)" | key)
    mkdir -p "$directory"
    for name in "${directories[@]}"; do
        [ ! -d "$name" ] || ln -sf "$name"/* "$directory"/
    done
    [ ! -e "$(base_archive)" ] || ln -sf "$(base_archive)" "$directory/base.tar"
    [ ! -e "$cache/promtool" ] || ln -sf "$cache/promtool" "$directory/promtool"
    printf '%s\n' "$directory"
}

case ${1-} in
    "") ;;
    --where)
        command -v go >/dev/null || fail "Go is missing; tests/e2e/set-up.sh says which version is needed"
        go_version=$(GOTOOLCHAIN=local go env GOVERSION GOARCH)
        where_it_is
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
go_version=$(GOTOOLCHAIN=local go env GOVERSION GOARCH)
for name in $(component_names); do
    directory=$(component_directory "$name")
    [ -d "$directory" ] || build_component "$name" "$directory"
done
[ -e "$(base_archive)" ] || build_base "$(base_suite)" "$(base_archive)"
[ -e "$cache/promtool" ] || fetch_promtool
directory=$(where_it_is)
say "ready: $(ls "$directory" | paste -sd' ') in $directory"
