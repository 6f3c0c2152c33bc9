"""kubeconfig files for tests: one cluster, one user, one context."""

import base64
from pathlib import Path

import yaml


def write_kubeconfig(path: Path, url: str, token: str, *, ca: bytes | Path | None = None) -> Path:
    """Write a kubeconfig that reaches `url` with a bearer token; `ca` is the PEM to trust, or the file that holds it.

    Clients put a PEM into temporary files of their own, which stay where they are killed.
    """
    cluster: dict[str, object] = {"server": url}
    if isinstance(ca, Path):
        cluster["certificate-authority"] = str(ca)
    elif ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    context = {"cluster": "tests", "user": "tests", "namespace": "default"}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": "tests", "user": {"token": token}}],
                "contexts": [{"name": "tests", "context": context}],
                "current-context": "tests",
            }
        )
    )
    path.chmod(0o600)
    return path
