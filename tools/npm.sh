#!/usr/bin/env bash
# Install what the browser tests take from npm, in every directory that has a lock file; a second run is quick.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -- 'package-lock.json' '*/package-lock.json' | while read -r lock; do
	dir=$(dirname "$lock")
	if [ -d "$dir/node_modules" ] && cmp -s "$lock" "$dir/node_modules/.installed-lock"; then continue; fi
	echo "npm ci in $dir" >&2
	(cd "$dir" && npm ci --no-audit --no-fund --silent && cp package-lock.json node_modules/.installed-lock) </dev/null
done
