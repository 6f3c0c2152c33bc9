"""The values that the charts gpu-admission, gpu-booking and gpu-scheduler are tried with."""

import base64
from typing import Any

from tests.chart.hardening import HOSTILE

_PLACED: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"operator": "Exists"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": HOSTILE},
    "podLabels": {"team": "infra"},
    "monitoring": {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
}

SERVED: dict[str, Any] = {"scheduler": {"beside": False}}
VOLCANO: dict[str, Any] = {
    "scheduler": {"enabled": False},
    "extender": {"assumeAt": "filter", "volcanoShape": "v1.10"},
}
QUOTAS = {"team-a": {"quota": {"H100": 8, "A100-80GB": 4}, "pool": ["public"]}, "team-b": {"pool": [""]}, "team-c": {}}
THROUGH_US: dict[str, Any] = {"scheduler": {"bind": "all"}}
ADMISSION: dict[str, dict[str, Any]] = {
    "default": {},
    "binding all": THROUGH_US,
    "a scheduler of their own": {"scheduler": {"enabled": False, "bind": "shares"}, "extender": {"candidates": "best"}},
    "behind a service": SERVED,
    "the seed's names": {"scheduler": {"beside": False, "name": "gpu-scheduler"}},
    "volcano": VOLCANO,
    "TLS": {**SERVED, "tls": {"enabled": True}},
    "their certificate": {
        **SERVED,
        "tls": {"enabled": True, "existingSecret": "theirs", "caBundle": base64.b64encode(b"a bundle").decode()},
    },
    "quotas": {"quotas": QUOTAS},
    "no quotas": {"quotas": {}},
    "all on": {
        **_PLACED,
        "namespace": "",
        "quotas": QUOTAS,
        "quotaNamespace": "quotas",
        "extender": {"databaseSecret": "gpu-dev-database", "policy": "binpack", "shareCards": "policy"},
        "priorityClassName": "",
        "serviceAccount": {"annotations": {"a": HOSTILE}},
    },
}

URL = "https://gpu-dev.test/v1/schedulability"
GIVEN: dict[str, Any] = {"apiUrl": URL, "existingSecret": "theirs"}
OWNERS = {
    "users": {"system:serviceaccount:ci:runner": "ann@lab.org", "'\"{{ .Release }}": "bob"},
    "prefixes": ["oidc:"],
    "namespaces": {"vision-lab": "ann@lab.org"},
}
BOOKING: dict[str, dict[str, Any]] = {
    "default": GIVEN,
    "the seed's": {
        "apiUrl": "https://maia.test/maia-api/gpu-schedulability/",
        "apiToken": "secret-token",
        "namespace": "gpu-booking",
    },
    "their certificate": {**GIVEN, "webhook": {"caBundle": base64.b64encode(b"a bundle").decode()}},
    "cert-manager": {**GIVEN, "webhook": {"certManager": {"enabled": True}}},
    "no policy": {**GIVEN, "policy": {"enabled": False}},
    "one replica": {**GIVEN, "replicaCount": 1},
    "all on": {
        **_PLACED,
        **GIVEN,
        "existingSecretKey": "api.key",
        "apiCaSecret": "authority",
        "apiShape": "own",
        "existingOwnersConfigMap": "their-owners",
        "unbooked": "preemptible",
        "silence": "fail_closed",
        "place": "anywhere",
        "allowClaims": True,
        "gpuTypes": {"NVIDIA-Weird-Card": "h100"},
        "networkPolicy": {"kubernetesAt": [{"ipBlock": {"cidr": "10.0.0.0/24"}}]},
        "priorityClassName": "system-cluster-critical",
        "webhook": {"failurePolicy": "Ignore", "namespaceLabel": "team/enforced=yes", "clientCaSecret": "api-server"},
    },
}

SCHEDULER: dict[str, dict[str, Any]] = {
    "default": {},
    "the guide's": {
        "webhook": {"enabled": True, "caBundle": base64.b64encode(b"a bundle").decode()},
        "image": {"repository": "registry.test/gpu-scheduler/gpu-scheduler", "tag": "latest", "pullPolicy": "Always"},
    },
    "no webhook": {"webhook": {"enabled": False}},
    "no policy": {"policy": {"enabled": False}},
    "cert-manager": {"webhook": {"certManager": {"enabled": True}}},
    "their issuer": {
        "webhook": {"certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}}
    },
    "one replica": {"replicaCount": 1},
    "all on": {
        **_PLACED,
        "check": {"enabled": True, "namespace": "gpu-scheduler-tests"},
        "networkPolicy": {"kubernetesAt": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "kubernetesPorts": [16443]},
        "scheduler": {"databaseSecret": "gpu-dev-database", "overlap": "warn"},
        "priorityClassName": "system-cluster-critical",
        "serviceAccount": {"annotations": {"a": HOSTILE}},
        "webhook": {
            "excludedNamespaces": ["monitoring"],
            "failurePolicy": "Ignore",
            "extenderPods": True,
            "clientCaSecret": "k8s",
        },
    },
}
