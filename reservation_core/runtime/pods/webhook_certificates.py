"""Keep a webhook's certificates in a Secret and webhook configurations, or write them to files."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog
import yaml

from reservation_core.adapters.certificates.pairs import Pair, make_pair
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError
from reservation_core.adapters.kubernetes.other_objects.webhook_certificates import (
    AUTHORITIES,
    CERTIFICATE,
    KEPT,
    KEY,
    Configuration,
    ConfigurationKind,
    SecretCertificates,
)
from reservation_core.domain.network.serving_certificates import RenewalRules
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.serving_certificates import ChangedMeanwhileError
from reservation_core.runtime.kubernetes import open_transport
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.usecases.keep_certificates import keep_certificates

MANIFEST = "webhook-tls-secret.yaml"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """The Secret with the certificates, and the names of the webhook configurations that trust them."""

    namespace: str
    name: str
    mutating: Sequence[str]
    validating: Sequence[str] = ()


async def keep_secret(
    settings: CommonSettings, secret: KeptSecret, rules: RenewalRules, stop: asyncio.Event | None, every_s: float
) -> None:
    """Update the Secret and the configurations: once, or until `stop` every `every_s` seconds.

    Raises SettingsError for an unusable kubeconfig, and without `stop` also ClusterUnavailableError.
    """
    try:
        transport = open_transport(settings)
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error
    clock = SystemClock()  # certificates are checked by the clocks of machines, not by the database's
    configurations = [Configuration(ConfigurationKind.MUTATING, name) for name in secret.mutating]
    configurations += [Configuration(ConfigurationKind.VALIDATING, name) for name in secret.validating]
    store = SecretCertificates(transport, secret.namespace, secret.name, configurations)
    try:
        if stop is None:
            await _once(store, rules, clock)
            return

        async def once() -> None:
            try:
                await keep_certificates(store, rules, clock.now())
            except ChangedMeanwhileError as problem:
                raise ClusterUnavailableError(f"the webhook's certificates were changed meanwhile: {problem}") from None

        await Loops()["certificates"].repeat(once, rest_s=every_s, longest_s=every_s, stop=stop)
    finally:
        await transport.close()


async def _once(store: SecretCertificates, rules: RenewalRules, clock: SystemClock) -> None:
    for _ in range(10):
        try:
            await keep_certificates(store, rules, clock.now())
        except ChangedMeanwhileError as problem:
            _log.info("another process changes the webhook's certificates, too", why=str(problem))
            await asyncio.sleep(0.2)
            continue
        return
    raise ClusterUnavailableError("The webhook's certificates are changed by others all the time")


def write_files(folder: Path, namespace: str, secret: str, names: frozenset[str], valid_for: timedelta) -> None:
    """Write `ca.crt`, `tls.crt`, `tls.key` and a Secret's manifest to a folder.

    Only the owner can read files with the key. Raises FileExistsError if one of the files exists.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pair = make_pair(names, valid_for, SystemClock().now())
    files = {
        AUTHORITIES: (pair.authority, 0o644),
        CERTIFICATE: (pair.certificate, 0o644),
        KEY: (pair.key, 0o600),
        MANIFEST: (_manifest(namespace, secret, pair), 0o600),
    }
    existing = [name for name in files if (folder / name).exists()]
    if existing:
        raise FileExistsError(f"{folder} holds {', '.join(existing)} already; remove them, or name another folder")
    for name, (content, mode) in files.items():
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


def _manifest(namespace: str, secret: str, pair: Pair) -> bytes:
    text: str = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": secret, "namespace": namespace, "annotations": {KEPT: "kept"}},
            "stringData": {
                AUTHORITIES: pair.authority.decode(),
                CERTIFICATE: pair.certificate.decode(),
                KEY: pair.key.decode(),
            },
        },
        sort_keys=False,
    )
    return text.encode()
