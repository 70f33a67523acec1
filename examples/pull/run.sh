#!/usr/bin/env bash
# Process jobs with two workers that pull them over HTTP. One is killed with kill -9 midway; all jobs end, and each ends once.
# usage: examples/pull/run.sh [JOBS]   default 10000; needs redis-server, python3 and bin/bulkworker (make build)
set -euo pipefail
cd "$(dirname "$0")/../.."
jobs=${1:-10000}
bulkworker=${BULKWORKER:-bin/bulkworker}
dir=$(mktemp -d)
started=()
stop() {
	for ((i = ${#started[@]} - 1; i >= 0; i--)); do # the bulk worker last
		kill "${started[i]}" 2>/dev/null || true
		wait "${started[i]}" || true
	done
	rm -rf "$dir"
}
trap stop EXIT

# The bulk worker runs no jobs: it serves the API and the store. Jobs of a worker that has died start again after lease + 1 s.
cat >"$dir/bulkworker.yaml" <<YAML
listen: "127.0.0.1:0"
store: {dir: "$dir/data"}
worker: {count: 0, lease: 2s}
processors: {resize: {kind: pull}}
YAML
: >"$dir/log"
"$bulkworker" --config "$dir/bulkworker.yaml" 2>"$dir/log" &
started+=($!)
url=
for _ in $(seq 600); do
	addr=$(sed -n 's/.*"msg":"listening".*"addr":"\([^"]*\)".*/\1/p' "$dir/log")
	if [ -n "$addr" ] && python3 -c "import urllib.request; urllib.request.urlopen('http://$addr/readyz')" 2>/dev/null; then
		url=http://$addr
		break
	fi
	sleep 0.1
done
[ -n "$url" ] || { cat "$dir/log" >&2; exit 1; }

for i in $(seq "$jobs"); do echo "{\"id\":\"image-$i\",\"payload\":{\"width\":$((i % 1000 + 1))}}"; done >"$dir/jobs.ndjson"
"$bulkworker" submit --server "$url" --tenant acme --type resize --id demo "$dir/jobs.ndjson" >/dev/null 2>&1

: >"$dir/ledger"
python3 examples/pull/worker.py "$url" worker-1 "$dir/ledger" & killed=$!
python3 examples/pull/worker.py "$url" worker-2 "$dir/ledger" & started+=($!)
until [ "$(wc -l <"$dir/ledger")" -ge $((jobs / 4)) ]; do sleep 0.02; done
kill -9 "$killed"
echo "worker-1 was killed after $(grep -c worker-1 "$dir/ledger") runs" >&2
"$bulkworker" watch --server "$url" demo >/dev/null 2>&1

"$bulkworker" results --server "$url" demo >"$dir/results"
ended=$(wc -l <"$dir/results")
different=$(python3 -c "import json, sys; print(len({json.loads(line)['id'] for line in sys.stdin if json.loads(line)['status'] == 'succeeded'}))" <"$dir/results")
runs=$(wc -l <"$dir/ledger")
echo "$jobs jobs, $ended outcomes, of $different different jobs that succeeded; $runs runs, $((runs - jobs)) of them repeated"
[ "$ended" = "$jobs" ] && [ "$different" = "$jobs" ]
