#!/usr/bin/env bash
# Print a pattern of the tests that `go test -race -short` leaves out in part or whole, for -run.
# usage: tools/long.sh [--packages]   with --packages: the packages that have them
set -euo pipefail
cd "$(dirname "$0")/.."
found=$(find . -name '*_test.go' -not -path './bench/*' -not -path './deploy/*' -not -path './eta/backtest/*' -not -path './cmd/*' -print0 | xargs -0 awk '
	/^func / { name = "" }
	/^func Test/ { name = $2; sub(/\(.*/, "", name) }
	/short\.Skip\(|!?raceEnabled|raceDetector/ && name != "" { dir = FILENAME; sub(/\/[^\/]*$/, "", dir); print dir, name }' | sort -u)
if [ "${1:-}" = --packages ]; then
	cut -d' ' -f1 <<<"$found" | sort -u
else
	printf '^(%s)$\n' "$(cut -d' ' -f2 <<<"$found" | sort -u | grep -v '^TestMain$' | paste -sd'|')"
fi
