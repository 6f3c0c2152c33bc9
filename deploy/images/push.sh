#!/bin/sh
# Build every image and push it, with an SBOM and its provenance attached; dist/images.json says the digests.
#   REGISTRY=registry.example.org/team/ TAG=1.2.3 BASE_IMAGE=docker.io/library/python:3.11-slim@sha256:… \
#     NODE_IMAGE=docker.io/library/node:24-slim@sha256:… deploy/images/push.sh
# Needs docker with buildx, and a login to the registry.
set -eu

case ${REGISTRY:-} in
  */) ;;
  *) echo "push.sh: REGISTRY is where to push to, and ends in a slash: registry.example.org/team/" >&2; exit 2 ;;
esac
case ${TAG:-} in
  '') echo "push.sh: TAG is what to call them, such as 1.2.3" >&2; exit 2 ;;
esac
case ${BASE_IMAGE:-} in
  *@sha256:*) ;;
  *) echo "push.sh: BASE_IMAGE needs a digest: what is published must be known to stand on what was looked at" >&2; exit 2 ;;
esac
case ${NODE_IMAGE:-} in
  *@sha256:*) ;;
  *) echo "push.sh: NODE_IMAGE needs a digest: the pages' scripts are built on it" >&2; exit 2 ;;
esac
export REGISTRY TAG BASE_IMAGE NODE_IMAGE
mkdir -p dist
exec docker buildx bake --push --set '*.attest=type=sbom' --set '*.attest=type=provenance,mode=max' \
  --metadata-file dist/images.json
