#!/usr/bin/env bash
# Lint and render the Helm chart with its examples, check what comes out, and give it to the programs. helm is a Go
# library here, so that nothing has to be installed for it. With -update, the generated parts of the chart are written.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
tools/need.sh redis-server promtool
echo "building bin/static/gateway and bin/static/bulkworker, as deploy/Containerfile does" >&2
mkdir -p bin/static
CGO_ENABLED=0 "$go" build -o bin/static/ ./cmd/gateway ./cmd/bulkworker
echo "deploy/helm/anteroom: helm lint --strict, and deploy/helm/test (helm is compiled the first time: a minute or two)" >&2
cd deploy/helm/test
# Without a package its output is shown, also when all is well.
exec "$go" test -vet=off -count=1 -timeout 8m "$@"
