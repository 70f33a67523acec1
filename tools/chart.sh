#!/usr/bin/env bash
# Lint and render the Helm chart with its examples, check the output, and pass the rendered configuration to the programs.
# helm is used as a Go library and needs no installation. With -update, the generated parts of the chart are written.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
export CGO_ENABLED=0
tools/need.sh redis-server promtool nginx
echo "building bin/static/gateway and bin/static/bulkworker, as deploy/Containerfile does" >&2
mkdir -p bin/static
"$go" build -o bin/static/ ./cmd/gateway ./cmd/bulkworker
echo "deploy/helm/anteroom: helm lint --strict, and deploy/helm/test (helm is compiled the first time: a minute or two)" >&2
# The API's packages are most of what is compiled. Without inlining they take a sixth less processor time; the programs and the standard
# library, whose packages other tests share, keep the caller's flags.
flags=$("$go" env GOFLAGS) tables=
if [[ $flags == *-dwarf=false* ]]; then tables='-dwarf=false '; fi
for packages in k8s.io sigs.k8s.io github.com/prometheus-operator github.com/google/gnostic-models; do
	flags+=" '-gcflags=$packages/...=$tables-l'"
done
cd deploy/helm/test
# Without a package argument, go test shows the output of passing tests too.
GOFLAGS=$flags exec env GOGC=400 "$go" test -exec="env -u GOGC" -vet=off -count=1 -timeout 20m "$@"
