#!/usr/bin/env bash
# Build and push both images for a release, and write manifests that name them by digest.
#   images.sh IMAGE    IMAGE: name of the images in a registry, without a tag, such as registry.example/team/tagae
#   BASE=python:3.11-slim   CUDA=nvidia/cuda:13.0.1-devel-ubuntu24.04   TORCH_INDEX_URL=   as in Dockerfile
#   TORCH_INDEX_URL is needed on x86-64, since the image `cpu` has no CUDA.
# Writes dist/images.json (base and built images with digests), dist/images.yaml (values of the chart), and in dist/ the
# manifests cluster.yaml, gpu.yaml, one-pod.yaml and sidecar.yaml.
set -euo pipefail
cd "$(dirname "$0")/.."
image=${1:?"expected the name of the image, such as: make images IMAGE=registry.example/team/tagae"}
base=${BASE:-python:3.11-slim}
cuda=${CUDA:-nvidia/cuda:13.0.1-devel-ubuntu24.04}
command -v docker >/dev/null || { echo "images.sh: expected docker on PATH, found none" >&2; exit 1; }

digest_of() { # of an image in a registry
    local digest
    digest=$(docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}')
    [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "images.sh: no digest of $1: '$digest'" >&2; return 1; }
    echo "$digest"
}

base_digest=$(digest_of "$base")
redis=$(sed -n 's|^ *image: \(redis:.*\)$|\1|p' cluster.yaml)
redis_image="${redis%%:*}@$(digest_of "$redis")"
cuda_digest=$(digest_of "$cuda")
mkdir -p dist
cp cluster.yaml deploy/kubernetes/gpu.yaml deploy/kubernetes/one-pod.yaml deploy/sidecar/sidecar.yaml dist/
manifests=(dist/cluster.yaml dist/gpu.yaml dist/one-pod.yaml dist/sidecar.yaml)
sed -i "s|image: $redis\$|image: $redis_image|" "${manifests[@]}"
printf 'images:\n  redis: %s\n' "$redis_image" >dist/images.yaml
entries=
for target in cpu gpu; do
    docker buildx build --target "$target" --build-arg "BASE=${base%%@*}@$base_digest" \
        --build-arg "CUDA=${cuda%%@*}@$cuda_digest" \
        --build-arg "TORCH_INDEX_URL=${TORCH_INDEX_URL:-}" --provenance=true --sbom=true -t "$image:$target" --push .
    digest=$(digest_of "$image:$target")
    sed -i "s|image: tagae:$target\$|image: $image@$digest|" "${manifests[@]}"
    echo "  $target: $image@$digest" >>dist/images.yaml
    entries+=", \"$target\": \"$image@$digest\""
done
echo "{\"base\": \"${base%%@*}@$base_digest\"$entries}" >dist/images.json
if grep -nE 'image: (tagae|redis):' "${manifests[@]}"; then
    echo "images.sh: the images above are not named by digest" >&2
    exit 1
fi
echo "wrote dist/images.json, dist/images.yaml and ${manifests[*]}"
