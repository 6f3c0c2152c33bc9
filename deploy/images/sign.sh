#!/bin/sh
# Sign by its digest what push.sh has pushed: sign.sh [dist/images.json]
# Needs cosign and jq. Without a key (COSIGN_KEY) cosign signs with the identity of whoever runs it.
set -eu

pushed=${1:-dist/images.json}
images=$(jq --raw-output '.[] | objects | select(has("containerimage.digest"))
  | (."image.name" | split(",")[0] | sub(":[^:/]*$"; "")) + "@" + ."containerimage.digest"' "$pushed")
if [ -z "$images" ]; then
  echo "sign.sh: $pushed names no image. Run push.sh before." >&2
  exit 1
fi
for image in $images; do
  cosign sign --yes ${COSIGN_KEY:+--key "$COSIGN_KEY"} "$image"
done
