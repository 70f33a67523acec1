#!/usr/bin/env bash
# Lint and render every chart under deploy/helm, with its defaults and with each of its ci/*.yaml values.
set -euo pipefail
cd "$(dirname "$0")/.."
charts=$(git ls-files -- 'deploy/helm/**/Chart.yaml' 'deploy/helm/Chart.yaml')
if [ -z "$charts" ]; then
	echo "make chart: there is no chart in this tree yet (deploy/helm)" >&2
	exit 1
fi
command -v helm >/dev/null || {
	echo "make chart: helm is missing: see https://helm.sh/docs/intro/install/" >&2
	exit 1
}
for chart in $charts; do
	dir=$(dirname "$chart")
	helm lint --strict "$dir"
	helm template check "$dir" >/dev/null
	for values in "$dir"/ci/*.yaml; do
		[ -e "$values" ] || continue
		helm template check "$dir" --values "$values" >/dev/null
		echo "rendered $dir with $values"
	done
done
