"""The Pod Security Standard `restricted`, as its document has it: what of a pod breaks it."""

from collections.abc import Iterator, Mapping
from typing import Any

ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def violations(pod: Mapping[str, Any]) -> list[str]:
    """Each rule of `baseline` and `restricted` that the pod breaks; empty for a pod that the standard lets in."""
    spec = pod["spec"]
    return [
        *_of_pod(pod, spec),
        *(broken for container in _containers(spec) for broken in _of_container(spec, container)),
    ]


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind, [])


def _of_pod(pod: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    context = spec.get("securityContext", {})
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield key
    for volume in spec.get("volumes", []):
        if not (volume.keys() - {"name"}) <= ALLOWED_VOLUMES or len(volume) != 2:
            yield f"volume {volume['name']}"
    if context.get("sysctls"):
        yield "sysctls"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "hostProcess"
    if context.get("runAsUser") == 0:
        yield "pod runAsUser 0"
    if any(
        key.startswith("container.apparmor.security.beta.kubernetes.io/")
        for key in pod["metadata"].get("annotations", {})
    ):
        yield "apparmor annotation"
    yield from _labels_of_security_modules(context)


def _of_container(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[str]:
    context, around = container.get("securityContext", {}), spec.get("securityContext", {})
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if context.get("runAsNonRoot", around.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot"
    if context.get("runAsUser", around.get("runAsUser")) == 0:
        yield "runAsUser 0"
    seccomp = context.get("seccompProfile", around.get("seccompProfile", {})).get("type")
    if seccomp not in ("RuntimeDefault", "Localhost"):
        yield "seccomp"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield "hostPort"
    if {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & container.keys():
        yield "a probe may name a host"
    yield from _labels_of_security_modules(context)


def _labels_of_security_modules(context: Mapping[str, Any]) -> Iterator[str]:
    selinux = context.get("seLinuxOptions", {})
    if selinux.get("user") or selinux.get("role") or selinux.get("type") not in (None, "", "container_t"):
        yield "seLinux"
    if context.get("appArmorProfile", {}).get("type") not in (None, "RuntimeDefault", "Localhost"):
        yield "appArmor"
