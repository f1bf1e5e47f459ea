#!/usr/bin/env bash
# Fails, naming them, when Go files are not as gofmt writes them.
set -euo pipefail
cd "$(dirname "$0")/.."

# dot and underscore folders and testdata are not Go's to build, nor gofmt's to judge
unformatted=$(find . \( -name '.?*' -o -name '_*' -o -name testdata \) -prune -o -name '*.go' -print0 | xargs -0 "$(go env GOROOT)/bin/gofmt" -l)
if [ -n "$unformatted" ]; then
  printf 'not formatted (gofmt -w them):\n%s\n' "$unformatted" >&2
  exit 1
fi

# folders whose Go has no line over 120 columns; tables of tests may
narrow="analysis/edges analysis/feed analysis/incident analysis/names analysis/nest analysis/spans analysis/stored
  analysis/timeline internal/agree internal/validate stacktable trace/tracetest tracefile"
wide=$(find $narrow -name '*.go' ! -name '*_test.go' -exec awk 'length($0) > 120 { print FILENAME ":" FNR }' {} +)
if [ -n "$wide" ]; then
  printf 'lines over 120 columns:\n%s\n' "$wide" >&2
  exit 1
fi
