#!/usr/bin/env bash
# Print the packages whose code and tests start no goroutine, share nothing between goroutines and start no server.
# The race detector would find nothing in their tests and multiply the time in which these are compiled, linked and run.
set -euo pipefail
cd "$(dirname "$0")/.."
concurrent='^[[:space:]]*(defer )?go [a-zA-Z(]|\.Go\(|\.AfterFunc\(|t\.Parallel\(\)|net\.Listen|"(sync|sync/atomic|net/http/httptest|testing/synctest|[a-z./]*/redistest)"'
"${GO:-go}" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | while read -r package dir; do
	if ! grep -qE "$concurrent" "$dir"/*.go; then echo "$package"; fi
done
