#!/usr/bin/env bash
# Install and build everything that the end-to-end tests run against. Whatever is there already is kept.
#
#   tests/e2e/set-up.sh             install and build; prints one line per step
#   tests/e2e/set-up.sh --where     only print the directory where the tests find it
#   tests/e2e/set-up.sh --release   only print the release of Kubernetes, for example 1.37
#
# KUBERNETES in the environment selects the release of Kubernetes; the default is the newest of components/kubernetes-*.
# The other releases are not built.
#
# Debian packages are installed with apt-get. Each directory components/NAME pins a component with a go.mod of its own:
# either programs, which its tools.go names and which are built from source, or the files of one module, which its
# `files` lists. The base of the project's image is made with debootstrap, because there may be no registry within reach.
#
# Everything goes into $GAS_E2E_CACHE (default: gas-e2e in the user's cache directory). Each component has a
# subdirectory there, named for its sources and the version of Go, so a change to one component leaves the others as
# they are. A subdirectory appears only when it is complete.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
components=$here/components
containerfile=$here/../../Containerfile
cache=${GAS_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gas-e2e}

# Each line: a program that must be present, and the Debian package that contains it.
debian_programs=(
    "etcd etcd-server"
    "containerd containerd"
    "runc runc"
    "busybox busybox-static"
    "nsenter util-linux"
    "buildah buildah"
    "debootstrap debootstrap"
    "shellcheck shellcheck"
    "gcc gcc"
    "chromium chromium"
    "/usr/lib/cni/loopback containernetworking-plugins"
)

say() { printf 'e2e set-up: %s\n' "$*"; }
fail() { printf 'e2e set-up: %s\n' "$*" >&2; exit 1; }

# run_step SENTENCE COMMAND…: run the command and show its output only if it fails.
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

# at_least WANTED FOUND: succeed if the version FOUND is WANTED or later.
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
    can_install || fail "programs are missing, and installing them with apt-get needs root. As root, run:" \
        "apt-get install ${missing[*]} (on other systems, install packages with the same programs)"
    install_packages "${missing[@]}"
}

# Go itself. The go directives of the components in use say which version is enough. Debian's Go is installed only if it
# is new enough.
require_go() {
    local wanted found offered
    wanted=$(component_names | while read -r name; do sed -n 's/^go //p' "$components/$name/go.mod"; done | sort -V | tail -n 1)
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
        fail "Go $wanted or later is needed and none is in PATH; Debian's package golang-go is ${offered:-not available}." \
            "Install Go from its own site or a backport and put it in PATH"
    fi
    fail "Go $wanted or later is needed and none is in PATH. Install it and put it in PATH"
}

known_releases() { printf '%s\n' "$components"/kubernetes-* | sed 's|.*/kubernetes-||' | sort -V; }

kubernetes_release() {
    local release=${KUBERNETES:-$(known_releases | tail -n 1)}
    [ -d "$components/kubernetes-$release" ] || fail "KUBERNETES=$release: there is no such release here;" \
        "choose one of: $(known_releases | paste -sd' ')"
    printf '%s\n' "$release"
}

# The components in use: of the releases of Kubernetes only the selected one.
component_names() {
    local file name
    for file in "$components"/*/go.mod; do
        name=$(basename "$(dirname "$file")")
        case $name in
            "kubernetes-$release") printf '%s\n' "$name" ;;
            kubernetes-*) ;;
            *) printf '%s\n' "$name" ;;
        esac
    done
}

go_in() { (cd "$components/$1" && shift && GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=readonly go "$@"); }

packages_of() { sed -n 's|^[[:space:]]*\(import \)\{0,1\}_ "\(.*\)"$|\2|p' "$components/$1/tools.go"; }

key() { sha256sum | cut -c -16; }

component_directory() {
    local sources=$components/$1 contents=tools.go
    [ ! -e "$sources/files" ] || contents=files
    printf '%s/%s-%s\n' "$cache" "$1" "$({
        cat "$sources/go.sum" "$sources/$contents"
        find "$sources" -name main.go -exec cat {} +
        printf '%s\n' "$go_version"
    } | key)"
}

fetch_files() {
    local name=$1 directory=$2 module file
    module=$(sed -n 's/^require \([^ ]*\) \(v.*\)$/\1@\2/p' "$components/$name/go.mod")
    run_step "fetching $module" go_in "$name" mod download "$module"
    while read -r file; do
        install -m 0644 "$(GOTOOLCHAIN=local go env GOMODCACHE)/$module/$file" "$directory"
    done <"$components/$name/files"
}

# build_component NAME DIRECTORY: build all programs of a component, with one call of Go, which keeps all processors busy.
# Without the version flags, the programs of Kubernetes report v0.0.0-master. Go ignores flags for variables that a program
# does not have. Programs of this repository have no version.
build_component() {
    local name=$1 directory=$2 packages version major minor versions='' kubernetes=k8s.io/component-base/version
    local unfinished=$directory.unfinished
    rm -rf "$unfinished"
    mkdir "$unfinished"
    if [ -e "$components/$name/files" ]; then
        fetch_files "$name" "$unfinished"
        mv "$unfinished" "$directory"
        return
    fi
    mapfile -t packages < <(packages_of "$name")
    version=$(go_in "$name" list -f '{{.Module.Version}}' "${packages[0]}")
    IFS=. read -r major minor _ <<<"${version#v}"
    [ -z "$version" ] || versions="
            -X $kubernetes.gitVersion=$version -X $kubernetes.gitMajor=$major -X $kubernetes.gitMinor=$minor
            -X helm.sh/helm/v3/internal/version.version=$version"
    run_step "building ${packages[*]##*/} $version (minutes when Go's build cache is empty)" \
        go_in "$name" build -trimpath -buildvcs=false -o "$unfinished/" -ldflags "-s -w$versions" "${packages[@]}"
    mv "$unfinished" "$directory"
}

# The suite of Debian that the Containerfile builds on.
base_suite() { sed -n 's|^FROM docker.io/library/debian:\([a-z]*\)-slim.*|\1|p' "$containerfile" | head -n 1; }

base_archive() {
    printf '%s/debian-%s-slim-%s-%s.tar\n' \
        "$cache" "$(base_suite)" "$(dpkg --print-architecture)" "$(declare -f build_base | key)"
}

# Nearly the contents of the image debian:SUITE-slim: the minimal system without caches and documentation, but with the
# copyright files.
build_base() {
    local suite=$1 archive=$2 root
    root=$(mktemp -d)
    run_step "making the base of the image, Debian $suite (a minute)" debootstrap --variant=minbase "$suite" "$root"
    rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
        "${root:?}"/var/log/* "$root"/usr/share/{man,info,locale}/* "${root:?}"/dev/*
    find "$root/usr/share/doc" ! -type d ! -name copyright -delete
    find "$root/usr/share/doc" -type d -empty -delete
    run_step "packing it" tar --directory "$root" --numeric-owner --create --file "$archive.unfinished" .
    rm -rf "$root"
    mv "$archive.unfinished" "$archive"
}

# Debian's Prometheus and its promtool, without the service that the package starts.
fetch_prometheus() {
    local aside
    aside=$(mktemp -d)
    # shellcheck disable=SC2016 # sh expands it
    run_step "fetching Prometheus" sh -c 'cd "$1" && apt-get download prometheus && dpkg-deb --extract prometheus_*.deb .' \
        - "$aside"
    mv "$aside"/usr/bin/{promtool,prometheus} "$cache"
    rm -rf "$aside"
}

# The kernel's own headers about graphics drivers, of the newest kernel that Debian offers here. Debian's linux-libc-dev
# leaves them out; the headers for building modules have them.
fetch_drm_headers() {
    local aside package
    package=$(apt-cache search --names-only '^linux-headers-[0-9].*-common$' | cut -d' ' -f1 | sort -V | tail -n 1)
    [ -n "$package" ] || fail "no package linux-headers-*-common is known; run apt-get update"
    aside=$(mktemp -d)
    # shellcheck disable=SC2016 # sh expands it
    run_step "fetching the headers of graphics drivers from $package" \
        sh -c 'cd "$1" && apt-get download "$2" && dpkg-deb --extract ./*.deb .' - "$aside" "$package"
    mv "$aside"/usr/src/linux-headers-*/include/uapi/drm "$cache/drm-headers"
    rm -rf "$aside"
}

# Print a directory that links to everything that is built so far.
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
    for name in prometheus promtool; do
        [ ! -e "$cache/$name" ] || ln -sf "$cache/$name" "$directory/$name"
    done
    [ ! -e "$cache/drm-headers" ] || ln -sfn "$cache/drm-headers" "$directory/drm-headers"
    printf '%s\n' "$directory"
}

release=$(kubernetes_release)
case ${1-} in
    "") ;;
    --release)
        printf '%s\n' "$release"
        exit ;;
    --where)
        command -v go >/dev/null || fail "Go is missing; tests/e2e/set-up.sh says which version is needed"
        go_version=$(GOTOOLCHAIN=local go env GOVERSION GOARCH)
        where_it_is
        exit ;;
    *) fail "unknown argument $1; known: --where --release" ;;
esac

# Only one set-up runs at a time: a second one waits here and then finds everything done.
mkdir -p "$cache"
exec 9>"$cache/lock"
if ! flock --nonblock 9; then
    say "another set-up is running in $cache; waiting for it"
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
[ -e "$cache/prometheus" ] || fetch_prometheus
[ -e "$cache/drm-headers" ] || fetch_drm_headers
directory=$(where_it_is)
say "ready: $(find "$directory" -mindepth 1 -printf '%f\n' | sort | paste -sd' ') in $directory"
