#!/usr/bin/env bash
# Records examples/demo with bin/hbtrace and leaves the recording, a report and pictures in a folder.
# Usage: scripts/demo.sh [out]. A C compiler is installed where there is none and that is permitted.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-out}
mkdir -p "$out"

have() { command -v "$1" >/dev/null 2>&1; }
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif have sudo && sudo -n true 2>/dev/null; then sudo "$@"
  else return 1; fi
}
install_compiler() {
  if have apt-get; then as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends gcc libc6-dev
  elif have dnf; then as_root dnf install -y gcc
  elif have apk; then as_root apk add gcc musl-dev
  elif have pacman; then as_root pacman -S --noconfirm --needed gcc
  else return 1; fi
}

cc=${CC:-}
for candidate in gcc cc clang; do
  [ -n "$cc" ] || ! have "$candidate" || cc=$candidate
done
if [ -z "$cc" ]; then
  echo "demo: installing a C compiler, the demo is a C program" >&2
  install_compiler >&2 || { echo "demo: no C compiler, and none can be installed: install gcc, then make demo" >&2; exit 1; }
  cc=gcc
fi

"$cc" -O2 -g -fno-omit-frame-pointer -pthread -o "$out/demo" examples/demo/demo.c

bin/hbtrace run -o "$out/demo" -- "$out/demo" "${DEMO_SECONDS:-3}"
bin/hbtrace report "$out/demo.hbt" >"$out/report.txt"
bin/hbtrace report --locks "$out/demo.hbt" >"$out/locks.txt"
bin/hbtrace export "$out/demo.hbt" --timeline-svg "$out/timeline.svg" --flame-svg "$out/flame.svg" --folded "$out/demo.folded"

cat <<END

to look at:
  $out/report.txt              where the time went, in numbers
  $out/timeline.svg            what each thread did, and who let it go on (any browser)
  $out/flame.svg               the CPU time by stack
  $out/demo.perfetto-trace     drag it onto https://ui.perfetto.dev
  $out/demo.pb.gz              go tool pprof -http=: $out/demo.pb.gz
END
