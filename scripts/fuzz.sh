#!/usr/bin/env bash
# Runs every fuzz target of the module for a time, one after the other. Usage: scripts/fuzz.sh [10s]
set -euo pipefail
cd "$(dirname "$0")/.."
for_each=${1:-10s}

go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | while read -r package; do
  go test -list '^Fuzz' "$package" </dev/null | { grep '^Fuzz' || true; } | while read -r target; do
    printf '%s %s\n' "$package" "$target"
    # minimising what only looks interesting would take most of a short run
    go test -run '^$' -fuzzminimizetime 10x -fuzz "^$target\$" -fuzztime "$for_each" "$package" </dev/null
  done
done
