#!/usr/bin/env bash
# Runs the short tests under the race detector, which needs cgo and so a C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v "${CC:-gcc}" >/dev/null 2>&1; then
  echo "race: no C compiler, skipped" >&2
  exit 0
fi
CGO_ENABLED=1 go test -count=1 -race -short -timeout=30m ./...
