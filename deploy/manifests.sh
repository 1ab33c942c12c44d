#!/usr/bin/env bash
# Render the chart into the manifests that people apply without helm, as `make manifests` does.
#   manifests.sh [FOLDER]    FOLDER: where to write them; by default the repository
# Writes cluster.yaml, deploy/kustomize/gpu/tagae.yaml (the same) and deploy/kustomize/cpu-only/tagae.yaml.
set -euo pipefail
chart=$(cd "$(dirname "$0")/helm/tagae" && pwd)
cd "${1:-"$chart/../../.."}"
command -v helm >/dev/null || { echo "manifests.sh: expected helm on PATH, found none; make setup installs it" >&2; exit 1; }

render() {
    helm template tagae "$chart" --namespace tagae --set namespace.create=true "$@" | sed '/^# Source: /d' | cat -s
}

mkdir -p deploy/kustomize/gpu deploy/kustomize/cpu-only
cat >cluster.yaml <<'HEADER'
# TAGAE on several nodes, with KubeRay 1.5.1 or later: kubectl apply -f cluster.yaml
#
# Written by `make manifests` from the chart deploy/helm/tagae with its default values. To change it, change the chart or
# use your own values. docs/cluster.md leads from nothing to a verdict.
#
# Before that:
# - Build and push the two images: `make images IMAGE=REGISTRY/tagae` writes dist/cluster.yaml, which names them by digest.
#   The tags below are for a try on one node.
# - Make the namespace and the Secrets tagae-tokens (hashes of the clients' tokens) and tagae-redis (a password), as
#   docs/cluster.md shows.
# - Compare the namespaces in the NetworkPolicy with yours: of the operator, of Prometheus, of the ingress controller.
#
# Ray's ports need a token, which KubeRay makes for this cluster (authOptions). Tokens are not encrypted on the way, so
# the NetworkPolicy below is needed too, and a network plugin that enforces it.
HEADER
render >>cluster.yaml
cp cluster.yaml deploy/kustomize/gpu/tagae.yaml
{
    echo "# Written by \`make manifests\` from the chart deploy/helm/tagae with its values cpu-only.yaml."
    render --values "$chart/cpu-only.yaml"
} >deploy/kustomize/cpu-only/tagae.yaml
