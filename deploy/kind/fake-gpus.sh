#!/bin/sh
# Say of every node with the label gpu-node-name that it has GPUs. There are none: pods get numbers, and no card.
#   fake-gpus.sh [COUNT [PRODUCT [MIB]]]    by default 4 NVIDIA-H100-80GB-HBM3 81559
# Uses kubectl and its current context. A kubelet that starts anew may forget the numbers: run this again then.
set -eu

count=${1:-4}
product=${2:-NVIDIA-H100-80GB-HBM3}
mib=${3:-81559}
case $count in
  '' | *[!0-9]*) echo "fake-gpus.sh: COUNT is a whole number, and '$count' is none." >&2; exit 2 ;;
esac

nodes=$(kubectl get nodes --selector=gpu-node-name --output=name)
if [ -z "$nodes" ]; then
  echo "fake-gpus.sh: no node has the label gpu-node-name. Is $(kubectl config current-context) the cluster you mean?" >&2
  exit 1
fi
for node in $nodes; do
  kubectl label "$node" --overwrite "nvidia.com/gpu.product=$product" "nvidia.com/gpu.memory=$mib" \
    "nvidia.com/gpu.count=$count" nvidia.com/gpu.present=true
  kubectl patch "$node" --subresource=status --type=merge --patch \
    "{\"status\": {\"capacity\": {\"nvidia.com/gpu\": \"$count\"}, \"allocatable\": {\"nvidia.com/gpu\": \"$count\"}}}"
done
