#!/usr/bin/env bash
# Run the tests that drive a real browser: those in files that import chromedp.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
files=$(git grep -l '"github.com/chromedp/chromedp"' -- '*_test.go' || true)
if [ -z "$files" ]; then
	echo "make browser: no test in this tree drives a browser" >&2
	exit 1
fi
# shellcheck disable=SC2086
tests=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)([a-z]* \*testing\.T).*/\1/p' $files | sort -u | paste -s -d '|' -)
dirs=$(dirname $files | sort -u | sed 's|^|./|')
# shellcheck disable=SC2086
exec $GO test -race -vet=off -timeout 10m -run "^($tests)\$" $dirs
