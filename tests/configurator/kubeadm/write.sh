#!/usr/bin/env bash
# Lets real kubeadm of every supported release write the kube-scheduler manifest, which the tests then work on, and those
# of the end-to-end tests kube-apiserver's as well.
#
#   tests/configurator/kubeadm/write.sh             every release below
#   tests/configurator/kubeadm/write.sh 1.25 1.36   only these
#
# kubeadm is built from source with Go, in a module that needs that release of Kubernetes: minutes each when Go's build
# cache is empty. It needs root, since kubeadm writes below a root directory of its own (--rootfs).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
releases=(
    1.25.16 1.26.15 1.27.16 1.28.15 1.29.15 1.30.14 1.31.14 1.32.13 1.33.13 1.34.4 1.35.4 1.36.3 1.37.1
)
# The one that old releases name walks through maps as Go made them until 1.23.
reflect2=v1.0.3-0.20250322232337-35a7c28c31ee
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT

go_in_work() { (cd "$work" && GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0 go "$@"); }

# A module that needs exactly this release. Its own go.mod names the parts of Kubernetes as directories of its
# repository, which are published as modules v0.MINOR.PATCH.
write_module() {
    local release=$1 source=$2 part
    {
        printf 'module kubeadm\n\ngo %s\n\n' "$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' "$source/go.mod")"
        printf 'require (\n\tk8s.io/kubernetes v%s\n\tgithub.com/modern-go/reflect2 %s\n)\n\nreplace (\n' "$release" "$reflect2"
        sed -n 's|^\t*\(replace \)\{0,1\}\(k8s.io/[a-z-]*\) => ./staging/.*|\2|p' "$source/go.mod" | sort -u |
            while read -r part; do
                printf '\t%s => %s %s\n' "$part" "$part" "$(published_part "$part" "$release" "$source")"
            done
        printf ')\n'
    } >"$work/go.mod"
    rm -f "$work/go.sum"
}

# The version of a part for a release. Some of them do nothing for kube-scheduler's manifest, but kubeadm is compiled with
# them; where a module proxy lacks one in this very release, that of the next later one in the list does.
published_part() {
    local part=$1 release=$2 source=$3 candidate
    if [ "$part" = k8s.io/cri-api ] && grep -q k8s.io/cri-client "$source/go.mod"; then
        published_part k8s.io/cri-client "$release" "$source" # the two belong together
        return
    fi
    case $part in
        k8s.io/kube-proxy | k8s.io/cluster-bootstrap | k8s.io/cri-client)
            for candidate in "${releases[@]}"; do
                at_least "$release" "$candidate" || continue
                if go mod download "$part@v0.${candidate#1.}" >/dev/null 2>&1 </dev/null; then
                    printf 'v0.%s\n' "${candidate#1.}"
                    return
                fi
            done
            ;;
    esac
    printf 'v0.%s\n' "${release#1.}"
}

# at_least WANTED FOUND: whether the version FOUND is WANTED or later.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Go no longer lets a program reach into other packages as some of the libraries of old releases do, so the linker is
# configured to allow it.
build_kubeadm() {
    local release=$1 version=k8s.io/component-base/version
    go_in_work build -trimpath -buildvcs=false \
        -ldflags "-s -w -checklinkname=0 -X $version.gitVersion=v$release -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$release")" \
        -o "$work/kubeadm" k8s.io/kubernetes/cmd/kubeadm
}

for release in "${releases[@]}"; do
    minor=${release%.*}
    if [ $# -gt 0 ] && [[ " $* " != *" $minor "* ]]; then
        continue
    fi
    source=$(cd "$work" && GOTOOLCHAIN=local go mod download -json "k8s.io/kubernetes@v$release" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
    write_module "$release" "$source"
    started=$SECONDS
    build_kubeadm "$release"
    built=$((SECONDS - started))
    root=$work/root
    rm -rf "$root"
    mkdir -p "$root/tmp"
    "$work/kubeadm" init phase control-plane scheduler --rootfs "$root" --kubernetes-version "v$release" >/dev/null
    install -D -m 0644 "$root/etc/kubernetes/manifests/kube-scheduler.yaml" "$here/$minor/kube-scheduler.yaml"
    case $minor in
        1.35 | 1.37)
            "$work/kubeadm" init phase control-plane apiserver --rootfs "$root" --kubernetes-version "v$release" \
                --apiserver-advertise-address 192.0.2.1 >/dev/null
            install -m 0644 "$root/etc/kubernetes/manifests/kube-apiserver.yaml" "$here/$minor/kube-apiserver.yaml"
            ;;
    esac
    printf '%s: kubeadm v%s built in %s s\n' "$minor" "$release" "$built"
done
