#!/bin/sh
# Tries the scheduler and the webhook on a cluster: makes the check service's five pods, waits for them, shows where they
# are and what they say, and writes validation-results.txt. Ends with 0 only if every pod is where its map says, and sees
# what its map says.
# Variables: NAMESPACE (gpu-scheduler-tests), SYSTEM (gpu-scheduler-system), MANIFEST (the check service's, beside this
# script), REPORT (validation-results.txt), TIMEOUT_S (120), KUBECTL (kubectl).
set -u

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
namespace=${NAMESPACE:-gpu-scheduler-tests}
system=${SYSTEM:-gpu-scheduler-system}
manifest=${MANIFEST:-$here/../manifests/gpu-scheduler-check.yaml}
report=${REPORT:-validation-results.txt}
timeout_s=${TIMEOUT_S:-120}
kubectl=${KUBECTL:-kubectl}

"$kubectl" apply -f "$manifest" || exit 1

# What each pod's entry of the map says: index, node, cards.
expected='0 node1 0,1
1 node2 2
2 node3 0,1,2
3 node4 3
4 node4 3'

# The node that the map means: the one with the label, else the one of that name.
node_called() {
    found=$("$kubectl" get nodes -l "gpu-node-name=$1" -o 'jsonpath={.items[*].metadata.name}')
    echo "${found:-$1}"
}

on_node() {
    "$kubectl" get pod "$1" -n "$namespace" -o 'jsonpath={.spec.nodeName}' 2>/dev/null
}

says() {
    "$kubectl" logs "$1" -n "$namespace" --tail=3 2>/dev/null
}

failed=0
results=''
deadline=$(($(date +%s) + timeout_s))
while read -r index name devices; do
    pod="gpu-scheduler-check-$index"
    node=$(node_called "$name")
    until says "$pod" | grep -q '^CUDA_VISIBLE_DEVICES: '; do
        [ "$(date +%s)" -lt "$deadline" ] || break
        sleep 1
    done
    seen=$(says "$pod" | sed -n 's/^CUDA_VISIBLE_DEVICES: //p' | head -n 1)
    where=$(on_node "$pod")
    if [ "$seen" = "$devices" ] && [ "$where" = "$node" ]; then
        verdict=ok
    else
        verdict="FAILED: on ${where:-no node} with CUDA_VISIBLE_DEVICES=${seen:-nothing}"
        failed=1
    fi
    results="$results$pod: $node ($name), CUDA_VISIBLE_DEVICES=$devices: $verdict
"
done <<EOF
$expected
EOF

{
    echo "=== GPU Scheduler Validation Report ==="
    echo "Date: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo
    echo "=== Cluster Status ==="
    "$kubectl" get nodes -L gpu-node-name
    echo
    echo "=== Scheduler Status ==="
    "$kubectl" get pods -n "$system"
    echo
    echo "=== Test Pods Status ==="
    "$kubectl" get pod -o wide -A
    echo
    echo "=== Logs of the pods on node3 and node4 ==="
    for index in 2 3 4; do
        echo "~ kubectl logs gpu-scheduler-check-$index -n $namespace"
        says "gpu-scheduler-check-$index"
    done
    echo
    echo "=== Environment Variable Validation ==="
    printf '%s' "$results"
} >"$report" 2>&1

cat "$report"
[ "$failed" -eq 0 ] || echo "Some pods are not as their map says. kubectl describe pod POD -n $namespace says why one waits." >&2
exit "$failed"
