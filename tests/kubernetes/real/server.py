"""A real kube-apiserver on a real etcd: a temporary folder, own ports, RBAC on, admission as the server has it."""

import json
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.kubernetes.real import guarded
from tests.people.client_certificates import signed_client
from tests.programs.ports import own_port
from tests.waiting import eventually_sync

ADMIN_TOKEN = secrets.token_urlsafe(24)
_PATIENCE_S = 120.0


class RealServer:
    """Running once it is made. `ca` is the PEM that the server's certificate is signed by.

    To webhooks and kubelets it shows a client certificate, which `webhooks_authority` (a PEM file) has signed.
    """

    def __init__(self, assets: Path, folder: Path) -> None:
        etcd_port, etcd_peer_port, port = own_port(), own_port(), own_port()
        (folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
        (folder / "tokens.csv").chmod(0o600)
        key = folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        self.url = f"https://127.0.0.1:{port}"
        self.ca = b""
        self._folder = folder
        self.webhooks_authority, certificate = signed_client(folder, "kube-apiserver")
        _admission(folder, certificate)
        self._command = [*_apiserver(assets, folder, etcd_port, port, key), *_to_kubelets(certificate)]
        self._etcd = guarded.start(_etcd(assets, folder, etcd_port, etcd_peer_port), folder / "etcd.log")
        self._server = guarded.start(self._command, folder / "kube-apiserver.log")
        try:
            self._await_readiness()
        except BaseException:
            self.stop()
            raise

    @property
    def ca_file(self) -> Path:
        """Where `ca` lies."""
        return _certificate(self._folder)

    def restart(self) -> None:
        """End kube-apiserver and start it on the same etcd and port: what its watch cache knew is forgotten."""
        guarded.end(self._server)
        self._server = guarded.start(self._command, self._folder / "kube-apiserver.log")
        self._await_readiness()

    def stop(self) -> None:
        """End both."""
        guarded.end(self._server)
        guarded.end(self._etcd)

    def _await_readiness(self) -> None:
        eventually_sync(lambda: _has_certificate(self._folder, self._server), _PATIENCE_S)
        self.ca = _certificate(self._folder).read_bytes()
        eventually_sync(lambda: _ready(self.url, self.ca, self._folder, self._server), _PATIENCE_S)


def _etcd(assets: Path, folder: Path, port: int, peer_port: int) -> list[str]:
    return [
        str(assets / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{port}",
        f"--advertise-client-urls=http://127.0.0.1:{port}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
        "--quota-backend-bytes=4294967296",
        "--unsafe-no-fsync",
    ]


def _apiserver(assets: Path, folder: Path, etcd_port: int, port: int, key: Path) -> list[str]:
    return [
        str(assets / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--kubelet-preferred-address-types=InternalIP",
        "--event-ttl=1h",
        f"--admission-control-config-file={folder / 'admission.yaml'}",
        "--v=1",
    ]


def _to_kubelets(certificate: Path) -> list[str]:
    return [f"--kubelet-client-certificate={certificate}", f"--kubelet-client-key={certificate}"]


def _admission(folder: Path, certificate: Path) -> None:
    """How it is told to show a certificate to all webhooks: once for those that change, once for those that judge."""
    user = {"client-certificate": str(certificate), "client-key": str(certificate)}
    users = folder / "webhooks.kubeconfig"
    users.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}))
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(users),
    }
    names = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    plugins = [{"name": name, "configuration": configuration} for name in names]
    told = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
    (folder / "admission.yaml").write_text(json.dumps(told))


def _certificate(folder: Path) -> Path:
    return folder / "certificates" / "apiserver.crt"


def _has_certificate(folder: Path, server: subprocess.Popen[bytes]) -> bool:
    _raise_if_over(folder, server)
    return _certificate(folder).exists() and _certificate(folder).stat().st_size > 0


def _ready(url: str, ca: bytes, folder: Path, server: subprocess.Popen[bytes]) -> bool:
    _raise_if_over(folder, server)
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    try:
        context = ssl.create_default_context(cadata=ca.decode())
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return bool(answer.read() == b"ok")
    except (OSError, urllib.error.URLError):
        return False


def _raise_if_over(folder: Path, server: subprocess.Popen[bytes]) -> None:
    if server.poll() is not None:
        said = (folder / "kube-apiserver.log").read_text()[-3000:]
        raise RuntimeError(f"kube-apiserver ended. It said: {said}")
