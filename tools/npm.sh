#!/usr/bin/env bash
# Install the npm packages of the given directories, or of every directory with a lock file. A second run installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(git ls-files -- 'package-lock.json' '*/package-lock.json' | xargs -n1 dirname)
for dir in "$@"; do
	lock=$dir/package-lock.json
	if [ -d "$dir/node_modules" ] && cmp -s "$lock" "$dir/node_modules/.installed-lock"; then continue; fi
	echo "npm ci in $dir" >&2
	(cd "$dir" && npm ci --no-audit --no-fund --silent && cp package-lock.json node_modules/.installed-lock) </dev/null
done
