#!/usr/bin/env bash
# Fails when what is generated and committed is not what its sources make now. The agent is compiled anew and
# compared byte for byte where the compiler is the one that made it; elsewhere its sources' hash, which
# `go test ./agent` checks, has to do. Leaves the fresh files behind, to be committed.
set -euo pipefail
cd "$(dirname "$0")/.."

generated() { find . -name '.?*' -prune -o \( -name 'z*.go' -o -name '*_linux_*.so' -o -name '*_linux_*.elf' -o -name 'z*.o' -o -name 'zpage.js' \) -type f -print | sort; }
made_by() { grep -aoE 'GCC: \([^)]*\) [0-9][0-9.]*' "$1" | sort -u; }

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
generated | while read -r file; do
  mkdir -p "$before/$(dirname "$file")"
  cp "$file" "$before/$file"
done

if ! command -v gcc >/dev/null 2>&1; then
  echo "fresh: no gcc: nothing is generated anew; go test checks the hashes of the sources"
  exit 0
fi
echo 'int x;' | gcc -x c -c -o "$before/probe.o" -
here=$(made_by "$before/probe.o")
agent=agent/hbagent_linux_amd64.so
packages=$(go list -f '{{.ImportPath}}' ./...)
if [ -f "$agent" ] && [ "$(made_by "$agent")" != "$here" ]; then
  echo "fresh: the agent was made by $(made_by "$agent"), this is $here: not compiled anew; go test checks its sources' hash"
  packages=$(printf '%s\n' "$packages" | grep -v -e '/agent$' -e '/goruntime$')
fi
# The kernel program likewise: clang's version is noted next to it.
clang_here=$(clang --version 2>/dev/null | head -n 1 || true)
if [ -f kernel/zsources.go ] && { [ ! -e /usr/include/bpf/bpf_helpers.h ] || ! grep -qF "\"$clang_here\"" kernel/zsources.go; }; then
  echo "fresh: the kernel program was made by $(grep -o 'madeBy.*' kernel/zsources.go | cut -d'"' -f2), here is ${clang_here:-no clang}: not compiled anew; go test checks its sources' hash"
  packages=$(printf '%s\n' "$packages" | grep -v '/kernel$')
fi
# shellcheck disable=SC2086 # one word for each package
go generate $packages
# arm64's agent comes from another compiler; what another version of it makes is no finding.
cross=
if command -v aarch64-linux-gnu-gcc >/dev/null 2>&1; then
  echo 'int x;' | aarch64-linux-gnu-gcc -x c -c -o "$before/probe.o" -
  cross=$(made_by "$before/probe.o")
fi
agent64=agent/hbagent_linux_arm64.so
if [ "$cross" != "$(made_by "$before/$agent64")" ]; then
  echo "fresh: arm64's agent was made by $(made_by "$before/$agent64"), here is ${cross:-no aarch64-linux-gnu-gcc}: left as it is; go test checks its sources' hash where there is one"
  for file in "$agent64" agent/zsources_aarch64.go; do cp "$before/$file" "$file"; done
fi

stale=
while read -r file; do
  if ! cmp -s "$file" "$before/$file"; then stale="$stale $file"; fi
done < <(generated)
if [ -n "$stale" ]; then
  echo "fresh: not what the sources make:$stale: commit what make generate writes" >&2
  exit 1
fi
echo "fresh: $(generated | wc -l) generated files are what the sources make ($here)"
