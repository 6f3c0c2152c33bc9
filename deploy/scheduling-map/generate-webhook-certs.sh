#!/bin/sh
# Makes the webhook's certificate and the manifest of its Secret in ./certs:
#   certs/ca.crt  certs/tls.crt  certs/tls.key  certs/webhook-tls-secret.yaml
# Variables: NAMESPACE (gpu-scheduler-system), SERVICE (gpu-scheduler-webhook), OUT (certs), DAYS (365),
# PYTHON (one that has gpu-dev-server installed; by default this repository's .venv, else python3).
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-}
if [ -z "$python" ]; then
    python="$here/../../.venv/bin/python"
    [ -x "$python" ] || python=python3
fi
service=${SERVICE:-gpu-scheduler-webhook}

exec "$python" -m admission_webhook certs \
    --service "$service" \
    --namespace "${NAMESPACE:-gpu-scheduler-system}" \
    --secret "$service-tls" \
    --valid-days "${DAYS:-365}" \
    --out "${OUT:-certs}"
