#!/usr/bin/env bash
# usage: dist.sh [DIR]
# Builds what is published from the commit that is checked out, into DIR (dist): for each architecture of ARCHS a tar.gz, a .deb, a .rpm and an SBOM, and SHA256SUMS.
# The same commit gives the same bytes. Needs Go, git and tar; nfpm and cyclonedx-gomod come as Go modules.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-dist}
archs=${ARCHS:-amd64 arm64}
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
go=${GO:-go}
# the version in the binary is the commit's; the time of everything packed is the commit's too
export GOFLAGS='-buildvcs=true -trimpath' CGO_ENABLED=0 TZ=UTC LC_ALL=C
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# what is committed, and nothing else
git clone -q "$PWD" "$work/hbtrace"
cd "$work/hbtrace"
$go build -o "$work/host" ./cmd/hbtrace
version=$("$work/host" version --json | sed -n 's/^ *"version": "\(.*\)",$/\1/p')
case $version in
  v[0-9]*) ;;
  *) echo "dist: the binary says version '$version': build from a git clone" >&2; exit 1 ;;
esac

# what every architecture has
share=$work/share
mkdir -p "$share/man" "$share/completions"
"$work/host" man "$share/man" >/dev/null
gzip -n9 "$share"/man/*.1
"$work/host" completion bash >"$share/completions/hbtrace.bash"
"$work/host" completion zsh >"$share/completions/hbtrace.zsh"
"$work/host" completion fish >"$share/completions/hbtrace.fish"

for arch in $archs; do
  name=hbtrace-${version#v}-linux-$arch
  root=$work/$name
  mkdir -p "$root"
  GOARCH=$arch $go build -ldflags=-s -o "$root/hbtrace" ./cmd/hbtrace
  cp -R "$share/man" "$share/completions" LICENSE README.md "$root/"
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -n9 >"$out/$name.tar.gz"
  cat >"$work/nfpm.yaml" <<YAML
name: hbtrace
arch: $arch
platform: linux
version: $version
section: devel
maintainer: The hbtrace authors <hbtrace@localhost>
description: Profiler that shows where every thread's time goes, running or blocked, and who ended each wait.
homepage: https://github.com/hbtrace/hbtrace
license: Apache-2.0
mtime: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
rpm:
  buildhost: localhost
contents:
  - {src: $root/hbtrace, dst: /usr/bin/hbtrace, file_info: {mode: 0755}}
  - {src: $share/man/, dst: /usr/share/man/man1/, type: tree}
  - {src: $share/completions/hbtrace.bash, dst: /usr/share/bash-completion/completions/hbtrace}
  - {src: $share/completions/hbtrace.zsh, dst: /usr/share/zsh/vendor-completions/_hbtrace}
  - {src: $share/completions/hbtrace.fish, dst: /usr/share/fish/vendor_completions.d/hbtrace.fish}
  - {src: LICENSE, dst: /usr/share/doc/hbtrace/copyright}
YAML
  for packager in deb rpm; do
    GOFLAGS=-mod=mod $go run $nfpm package -f "$work/nfpm.yaml" -p $packager -t "$out/$name.$packager" >/dev/null
  done
  GOFLAGS=-mod=mod $go run $sbom bin -json -noserial -notimestamp -version "$version" -output "$out/$name.cdx.json" "$root/hbtrace" 2>"$work/sbom.log" || { cat "$work/sbom.log" >&2; exit 1; }
done
(cd "$out" && sha256sum hbtrace-"${version#v}"-* >SHA256SUMS && cat SHA256SUMS)
