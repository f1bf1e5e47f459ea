#!/usr/bin/env bash
# Runs the tests and prints, at the end, which were skipped and why, and the time of each package; the last lines are go test's own.
# Arguments go to go test. HBTRACE_SHORT=1 adds -short.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

[ "${HBTRACE_SHORT:-}" != 1 ] || set -- -short "$@"
# -v is what shows skips; only what fails, the packages' results and the skips are of interest afterwards
# -p 1: packages that load the machine with real programs must not disturb one another's
go test -count=1 -timeout=20m -p 1 -v "$@" ./... >"$log" 2>&1
status=$?

if [ $status -ne 0 ]; then
  # whole output of failed tests: from the line that starts one to the line that says it failed
  grep -nE '^(FAIL|panic:|--- FAIL|    --- FAIL)|\[build failed\]|^#' "$log" | head -n 40
  printf '\n---- full output ----\n'
  cat "$log"
fi
# one line for each skipped test with its reason, and how many there are
skips=$(awk '
  /^=== (RUN|CONT|NAME)/ { name = $3 }
  /^ *[A-Za-z0-9_.\/-]+\.go:[0-9]+: / { line = $0; sub(/^ *[^ ]+ /, "", line); last[name] = line }
  /^ *--- SKIP: / { print "  " $3 ": " last[$3] }' "$log")
if [ -n "$skips" ]; then
  printf 'skipped, %s tests:\n%s\n' "$(printf '%s\n' "$skips" | wc -l)" "$skips"
fi
printf 'time of each package:\n'
sed -nE 's/^(ok|FAIL)[[:space:]]+([^[:space:]]+)[[:space:]]+([0-9.]+)s.*/\3 \2/p' "$log" | sort -rn | awk '{ printf "%9.1f s  %s\n", $1, $2 }'
# The last lines are go test's own.
grep -E '^(ok|FAIL|\?|panic:)[[:space:]]' "$log"
exit $status
