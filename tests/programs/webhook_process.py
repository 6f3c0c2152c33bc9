"""The admission webhook as a process of its own, with certificates that a test may change."""

import json
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from reservation_core.adapters.certificates.pairs import Pair, make_pair
from tests.programs.prepared_processes import started
from tests.waiting import PATIENCE_S, eventually_sync

_START_S = 90.0


def new_pair(name: str = "127.0.0.1") -> Pair:
    """A certificate for this machine, with an authority of its own."""
    return make_pair([name], timedelta(hours=1), datetime.now(UTC))


def write_pair(pair: Pair, folder: Path) -> tuple[Path, Path]:
    """Put it where a webhook looks: each file is whole at any moment, as in a Secret's volume."""
    files = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(files, (pair.certificate, pair.key), strict=True):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.chmod(0o600)
        fresh.rename(path)
    return files


class WebhookProcess:
    """`python -m admission_webhook serve` on a free port. `url` is known once it listens."""

    def __init__(self, folder: Path, name: str = "webhook", client_ca: Path | None = None, **settings: str) -> None:
        self._log = folder / f"{name}.log"
        command = ["admission_webhook", "serve", "--listen", "127.0.0.1:0"]
        command += ["--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")]
        command += [] if client_ca is None else ["--client-ca", str(client_ca)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        environment = {**kept, "GPU_DEV_WEBHOOK__CERTIFICATE_LOOK_S": "0.05"} | settings
        self.process = started(command, environment, self._log, forked=True)

    def await_listening(self) -> "WebhookProcess":
        """Returns once it accepts connections; starting several is quicker when all are started first."""
        eventually_sync(self._listens, _START_S)
        return self

    @property
    def url(self) -> str:
        """Its base URL."""
        return next(str(line["address"]) for line in self.log() if line["event"] == "webhook_listening")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def log(self) -> list[dict[str, Any]]:
        """What it said, line by line."""
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]

    def text(self) -> str:
        """What it said."""
        return self._log.read_text()

    def events(self) -> list[str]:
        """What it said, without times and particulars."""
        return [str(line["event"]) for line in self.log()]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """End it at once, where it still runs; returns its exit code."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait(PATIENCE_S)

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the webhook ended. It said: {self.text()[-3000:]}")
        return "webhook_listening" in self.events()


@contextmanager
def webhook_process(
    folder: Path, name: str = "webhook", client_ca: Path | None = None, **settings: str
) -> Iterator[WebhookProcess]:
    """One that listens, until the block's end. Its certificate must lie in `folder`, or come there later."""
    webhook = WebhookProcess(folder, name, client_ca, **settings)
    try:
        yield webhook.await_listening()
    finally:
        webhook.stop()


def trusting(*pairs: Pair) -> ssl.SSLContext:
    """A client's context that trusts these pairs' authorities."""
    return ssl.create_default_context(cadata="".join(pair.authority.decode() for pair in pairs))


@contextmanager
def client_of(webhook: WebhookProcess, *pairs: Pair) -> Iterator[httpx.Client]:
    """A client that trusts these pairs' authorities and nobody else."""
    with httpx.Client(base_url=webhook.url, verify=trusting(*pairs), trust_env=False, timeout=PATIENCE_S) as client:
        yield client


def admission_review(pod: Any, operation: str = "CREATE", *, uid: str = "an-uid", **request: Any) -> dict[str, Any]:
    """A question as the API server asks it."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": operation,
            "namespace": "default",
            "userInfo": {"username": "ada", "groups": ["system:authenticated"]},
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **request,
        },
    }
