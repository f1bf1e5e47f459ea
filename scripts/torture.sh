#!/usr/bin/env bash
# Runs stress-ng's stressors bare and recorded, one after the other, and fails when a stressor that passes bare does not
# pass recorded. Bounded: each runs for TORTURE_FOR (1s) with one instance, little memory and a directory of its own.
# Arguments are classes; by default scheduler cpu memory vm interrupt filesystem. Needs stress-ng.
set -uo pipefail
cd "$(dirname "$0")/.."

for_each=${TORTURE_FOR:-1s}
classes=("$@")
[ ${#classes[@]} -gt 0 ] || classes=(scheduler cpu memory vm interrupt filesystem)
command -v stress-ng >/dev/null || { echo "torture: needs stress-ng (apt-get install stress-ng)" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hbtrace=$work/hbtrace
CGO_ENABLED=0 go build -o "$hbtrace" ./cmd/hbtrace || exit 1

# left out: what ends, fills or reconfigures the machine, and what looks for faults of the hardware
left_out='^(bad-altstack|bind-mount|binderfs|clock|cpu-online|dev|dev-shm|fallocate|hdd|iomix|loop|module|munmap|oom-pipe|physpage|ramfs|reboot|remap|resources|rlimit|softlockup|swap|sysfs|sysinfo|watchdog|zlib)$'

# stressor NAME PREFIX…: its status; what it printed is in $work/out
stressor() {
  local name=$1
  shift
  mkdir -p "$work/files"
  timeout -k 5 60 "$@" stress-ng "--$name" 1 -t "$for_each" --vm-bytes 16M --temp-path "$work/files" --oomable --no-rand-seed >"$work/out" 2>&1
  local status=$?
  rm -rf "$work/files"
  return $status
}

ran=0 failed=0 skipped=0
for class in "${classes[@]}"; do
  for name in $(stress-ng --class "$class?" 2>&1 | sed -n 's/^class .*: //p'); do
    if [[ $name =~ $left_out ]]; then continue; fi
    if ! stressor "$name" env; then skipped=$((skipped + 1)); continue; fi # it does not pass here, recorded or not
    if grep -q 'skipped\|not implemented' "$work/out"; then skipped=$((skipped + 1)); continue; fi
    ran=$((ran + 1))
    if ! stressor "$name" "$hbtrace" run -q -o "$work/rec" --; then
      status=$?
      failed=$((failed + 1))
      printf 'torture: %s (%s): passes bare, status %d recorded\n' "$name" "$class" "$status"
      tail -n 5 "$work/out"
    fi
    rm -f "$work"/rec*
  done
done
printf 'torture: %d stressors pass bare, %d of them fail recorded; %d do not pass bare here\n' "$ran" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$ran" -gt 0 ]
