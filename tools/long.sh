#!/usr/bin/env bash
# Print a pattern of the tests that `go test -race -short` leaves out in part or whole, for -run: those that call short.Skip or SkipRace,
# or look for the race detector, themselves, through a function of their package or through one that packages share, as that which starts
# a cluster, and those in files that are not compiled with the race detector.
# usage: tools/long.sh [--packages]   with --packages: the packages that have them
set -euo pipefail
cd "$(dirname "$0")/.."
# Functions that packages share and that call short.Skip.
shared=$(git grep -l --untracked 'short\.Skip(' -- '*.go' ':!*_test.go' | xargs awk '
	/^func / { name = $2; sub(/\(.*/, "", name) }
	/short\.Skip\(/ { print name }' | sort -u | paste -sd'|')
# The packages that this leaves out run all their tests without -short (PROGRAMS and SEQUENTIAL of the Makefile), or are other modules.
found=$(find . -name '*_test.go' -not -path './bench/*' -not -path './deploy/*' -not -path './sdk/*' -not -path './test/*' -not -path './cmd/*' \
	-not -path './examples/*' -not -path './eta/*' -not -path './gateway/page/*' -not -path './lua/*' -print0 | sort -z | xargs -0 awk -v shared="$shared" '
	FNR == 1 { dir = FILENAME; sub(/\/[^\/]*$/, "", dir); name = ""; plain = 0 }
	/^\/\/go:build !race/ { plain = 1 }
	/^}/ { name = "" }
	/^func / {
		name = $0; sub(/^func (\([^)]*\) )?/, "", name); sub(/[^A-Za-z0-9_].*/, "", name)
		if ($0 ~ /^func \(/) name = "." name  # a method
		key = dir " " name; keys[++n] = key
		if (plain && name ~ /^Test/) marked[key] = 1
		next
	}
	name != "" { body[key] = body[key] $0 "\n" }
	END {
		skip = "short\\.Skip(Race)?\\(|!?raceEnabled|raceDetector|[^A-Za-z_](" shared ")\\("
		for (i = 1; i <= n; i++) if (body[keys[i]] ~ skip) marked[keys[i]] = 1
		do {
			more = 0
			for (i = 1; i <= n; i++) if (keys[i] in marked) {
				split(keys[i], helper, " ")
				if (helper[2] ~ /^(Test|Benchmark|Fuzz)/) continue
				call = helper[2] ~ /^\./ ? "\\" helper[2] "\\(" : "(^|[^A-Za-z0-9_.])" helper[2] "\\("
				for (j = 1; j <= n; j++) if (!(keys[j] in marked) && index(keys[j], helper[1] " ") == 1 && body[keys[j]] ~ call) more = marked[keys[j]] = 1
			}
		} while (more)
		for (key in marked) if (key ~ / Test/ && key !~ / TestMain$/) print key
	}' | sort -u)
# The packages without goroutines run all their tests without the race detector too.
module=$("${GO:-go}" list -m)
found=$(grep -vF "$(tools/sequential.sh | sed "s,^$module,.,; s,\$, ,")" <<<"$found")
if [ "${1:-}" = --packages ]; then
	cut -d' ' -f1 <<<"$found" | sort -u
else
	printf '^(%s)$\n' "$(cut -d' ' -f2 <<<"$found" | sort -u | paste -sd'|')"
fi
