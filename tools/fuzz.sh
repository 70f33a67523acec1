#!/usr/bin/env bash
# Run every fuzz target of both modules for DURATION each.
# usage: tools/fuzz.sh DURATION
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: tools/fuzz.sh DURATION, for example 10s}
GO=${GO:-go}
count=0
failed=()
while IFS=: read -r file target; do
	dir=$(dirname "$file")
	module=.
	case $dir in bench/*) module=bench dir=${dir#bench/} ;; esac
	echo "fuzz $target in $(dirname "$file") for $time" >&2
	(cd "$module" && $GO test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$dir") </dev/null || failed+=("$file $target")
	count=$((count + 1))
done < <(git ls-files -- '*_test.go' | while read -r f; do
	sed -n 's|^func \(Fuzz[A-Za-z0-9_]*\)(.*testing\.F).*|\1|p' "$f" | sed "s|^|$f:|"
done)
echo "$count targets, ${#failed[@]} failed" >&2
if [ "${#failed[@]}" -gt 0 ]; then
	printf '  %s\n' "${failed[@]}" >&2
	exit 1
fi
if [ "$count" -eq 0 ]; then
	echo "no fuzz target found" >&2
	exit 1
fi
