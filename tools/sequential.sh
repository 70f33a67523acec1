#!/usr/bin/env bash
# Print the packages in whose tests the race detector could find nothing and would multiply the time in which they are compiled, linked
# and run. A race needs two goroutines, so these are the packages whose code and tests start no goroutine and no server, and a few that
# the pattern below cannot tell from others. Locks and atomics alone do not count: no test uses them from two goroutines.
set -euo pipefail
cd "$(dirname "$0")/.."
module=$("${GO:-go}" list -m)
while read -r package _; do echo "$module/$package"; done <<'END'
admission/snapshot   pure functions; its parallel test has no data that another one changes
bulk/jobfile         parses a text; its parallel tests have a text each
internal/cli         listens only to occupy a port
internal/promscore   used by tests alone; reads what Prometheus, a process, has scraped
internal/redistest   used by tests alone, among them all that run with the race detector and a store
internal/sqltest     used by tests alone, among them bulk/relay's, which run with the race detector
internal/storeopen   opens one store after another
END
concurrent='^[[:space:]]*(defer )?go [a-zA-Z(]|\.Go\(|\.AfterFunc\(|\.(Run)?Parallel\(|net\.Listen|httptest\.New[A-Za-z]*Server|"(testing/synctest|[a-z./]*/redistest)"'
"${GO:-go}" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | while read -r package dir; do
	if ! grep -qE "$concurrent" "$dir"/*.go; then echo "$package"; fi
done
