#!/usr/bin/env bash
# Run the tests of the packages that drive a real browser (they import chromedp).
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
dirs=$(git grep -l '"github.com/chromedp/chromedp"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
if [ -z "$dirs" ]; then
	echo "make browser: no test in this tree drives a browser" >&2
	exit 1
fi
# shellcheck disable=SC2086
exec $GO test -race -vet=off -timeout 10m -run 'Browser' $dirs
