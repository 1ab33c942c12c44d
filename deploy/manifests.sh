#!/usr/bin/env bash
# Render the chart into the manifests that people apply without helm, as `make manifests` does.
#   manifests.sh [FOLDER]    FOLDER: where to write them; by default the repository
# Writes cluster.yaml, deploy/kubernetes/gpu.yaml and deploy/kubernetes/one-pod.yaml.
set -euo pipefail
chart=$(cd "$(dirname "$0")/helm/tagae" && pwd)
cd "${1:-"$chart/../../.."}"
command -v helm >/dev/null || { echo "manifests.sh: expected helm on PATH, found none; make setup installs it" >&2; exit 1; }

render() {
    helm template tagae "$chart" --namespace tagae "$@" | sed '/^# Source: /d' | cat -s
}

write() { # FILE TITLE, then arguments of helm
    cat >"$1" <<HEADER
# $2: kubectl apply -f $1
#
# Written by \`make manifests\` from the chart deploy/helm/tagae. To change it, change the chart or use your own values.
# docs/cluster.md leads from nothing to a verdict, and says how to uninstall. Before you apply it:
# - Create the namespace and its Secrets:
#     kubectl create namespace tagae
#     kubectl label namespace tagae pod-security.kubernetes.io/enforce=restricted
# - Build and push the images. \`make images IMAGE=REGISTRY/tagae\` writes dist/$(basename "$1"), which names them by digest.
#   The tags below are for a try on one node.
# - Compare the namespaces in the NetworkPolicy with yours: of the operator, of Prometheus, of the ingress controller.
HEADER
    render "${@:3}" >>"$1"
}

mkdir -p deploy/kubernetes
write cluster.yaml "TAGAE on several nodes without GPUs, with KubeRay 1.5.1 or later"
write deploy/kubernetes/gpu.yaml "TAGAE with scorers on GPUs, which needs nodes with nvidia.com/gpu and KubeRay 1.5.1 or later" --set device=auto
write deploy/kubernetes/one-pod.yaml "TAGAE as one pod, without KubeRay" --values "$chart/values-one-pod.yaml"
