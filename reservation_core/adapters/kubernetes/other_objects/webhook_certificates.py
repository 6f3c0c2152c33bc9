"""A webhook's certificates in a Secret, and its authorities in webhook configurations.

Objects are replaced with the resourceVersion that was read, so a concurrent change is an error and is not lost. The
Secret's `ca.crt` holds every trusted authority, so that it can be copied by hand.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import structlog

from reservation_core.adapters.certificates.pairs import (
    BadCertificateError,
    make_pair,
    read_authorities,
    read_serving,
    select_authorities,
)
from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ConflictError,
    InvalidError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.domain.network.serving_certificates import Holdings, authorities_alive
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.serving_certificates import ChangedMeanwhileError

KEPT = "gpu-dev/certificates"
"""The annotation (value `kept`) of a Secret whose certificates we renew."""

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
COMING_CERTIFICATE, COMING_KEY = "next.crt", "next.key"

_log = structlog.get_logger(__name__)


class ConfigurationKind(StrEnum):
    """The kind of a webhook configuration, as in its path."""

    MUTATING = "mutatingwebhookconfigurations"
    VALIDATING = "validatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration; all of its webhooks are ours."""

    kind: ConfigurationKind
    name: str

    @property
    def path(self) -> str:
        return f"/apis/admissionregistration.k8s.io/v1/{self.kind}/{self.name}"


class SecretCertificates:
    """The certificates in one Secret. Missing webhook configurations are skipped."""

    def __init__(
        self, transport: Transport, namespace: str, secret: str, configurations: Sequence[Configuration]
    ) -> None:
        self._transport = transport
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = secret
        self._configurations = configurations
        self._secret: dict[str, Any] | None = None
        self._data: dict[str, bytes] = {}
        self._holdings: Holdings | None = None

    async def holdings(self) -> Holdings | None:
        """Read the Secret; None where it is missing.

        Raises ClusterUnavailableError, also for a foreign Secret without certificates.
        """
        self._secret, self._data, self._holdings = None, {}, None
        try:
            self._secret = await self._ask("GET", f"{self._secrets}/{self._name}")
        except ObjectNotFoundError:
            return None
        self._data = {name: _decoded(text) for name, text in as_mapping(self._secret.get("data")).items()}
        annotations = as_mapping(as_mapping(self._secret.get("metadata")).get("annotations"))
        try:
            self._holdings = _read(self._data, ours=annotations.get(KEPT) == "kept")
        except BadCertificateError as problem:
            raise ClusterUnavailableError(
                f"Secret {self._name} does not hold what it should ({problem}). Delete it, and it is made again."
            ) from problem
        return self._holdings

    async def trusted(self, now: datetime) -> bool:
        """Whether every existing configuration names exactly the unexpired authorities."""
        wanted = _fingerprints(self._living(now))
        for configuration in self._configurations:
            content = await self._configuration(configuration)
            if content is not None and any(_fingerprints(bundle) != wanted for bundle in _bundles(content)):
                return False
        return True

    async def create(self, names: Iterable[str], valid_for: timedelta, now: datetime) -> None:
        """Make a certificate and use it at once.

        If the Secret was deleted, its certificate may still be served, so trusted authorities stay trusted.
        """
        pair = make_pair(names, valid_for, now)
        former = self._living(now) if self._secret is not None else await self._trusted_already()
        await self._write(
            {
                CERTIFICATE: pair.certificate,
                KEY: pair.key,
                AUTHORITIES: pair.authority + former,
                COMING_CERTIFICATE: None,
                COMING_KEY: None,
            }
        )

    async def stage(self, names: Iterable[str], valid_for: timedelta, now: datetime) -> None:
        """Make the next certificate, and add its authority."""
        pair = make_pair(names, valid_for, now)
        authorities = pair.authority + self._living(now)
        await self._write({COMING_CERTIFICATE: pair.certificate, COMING_KEY: pair.key, AUTHORITIES: authorities})

    async def trust(self, now: datetime) -> None:
        """Write the unexpired authorities to the configurations."""
        bundle = base64.b64encode(self._living(now)).decode()
        for configuration in self._configurations:
            content = await self._configuration(configuration)
            if content is None:
                _log.warning("webhook configuration does not exist yet", configuration=configuration.name)
                continue
            # After reading the configuration: another writer of the Secret then writes it after us, or our PUT fails.
            await self._check_unchanged()
            for webhook in as_list(content.get("webhooks")):
                webhook["clientConfig"] = {**as_mapping(webhook.get("clientConfig")), "caBundle": bundle}
            await self._ask("PUT", configuration.path, content)

    async def promote(self) -> None:
        """Use the next certificate."""
        await self._write(
            {
                CERTIFICATE: self._data[COMING_CERTIFICATE],
                KEY: self._data[COMING_KEY],
                COMING_CERTIFICATE: None,
                COMING_KEY: None,
            }
        )

    async def forget(self, now: datetime) -> None:
        """Remove expired authorities."""
        await self._write({AUTHORITIES: self._living(now)})

    async def _trusted_already(self) -> bytes:
        """The authorities that the configurations name, in PEM; the next step removes expired ones."""
        bundle = b""
        for configuration in self._configurations:
            for named in _bundles(await self._configuration(configuration) or {}):
                bundle += named + b"\n" if _fingerprints(named) else b""
        return select_authorities(bundle, _fingerprints(bundle)) if bundle else b""

    def _living(self, now: datetime) -> bytes:
        """The unexpired authorities in PEM; all of a foreign Secret."""
        if self._holdings is None or not self._holdings.authorities:
            return b""
        if not self._holdings.ours:
            return self._data[AUTHORITIES]
        return select_authorities(self._data[AUTHORITIES], authorities_alive(self._holdings, now))

    async def _write(self, changes: Mapping[str, bytes | None]) -> None:
        kept = {**self._data, **changes}
        data = {name: base64.b64encode(value).decode() for name, value in kept.items() if value is not None}
        if self._secret is not None:
            await self._ask("PUT", f"{self._secrets}/{self._name}", {**self._secret, "data": data})
            return
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": self._name, "annotations": {KEPT: "kept"}},
            "data": data,
        }
        await self._ask("POST", self._secrets, body)

    async def _check_unchanged(self) -> None:
        try:
            secret = await self._ask("GET", f"{self._secrets}/{self._name}")
        except ObjectNotFoundError:
            secret = {}
        if _version(secret) != _version(self._secret or {}):
            raise ChangedMeanwhileError(f"Secret {self._name} was changed by another client.")

    async def _configuration(self, configuration: Configuration) -> dict[str, Any] | None:
        try:
            return await self._ask("GET", configuration.path)
        except ObjectNotFoundError:
            return None

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            return await self._transport.request(method, path, body=body)
        except ConflictError as problem:
            raise ChangedMeanwhileError(f"{path} was changed by another client.") from problem
        except (ApiServerForbidsError, InvalidError) as problem:
            raise ClusterUnavailableError(
                f"The API server refuses {method} {path} ({problem.message}). Give the account `get`, `create` and"
                " `update` on that Secret, and `get` and `update` on the webhook configurations."
            ) from problem
        except ObjectNotFoundError:
            if method == "GET":
                raise
            raise ChangedMeanwhileError(f"{path} has gone, or its namespace is not there.") from None
        except ApiServerError as problem:
            raise ClusterUnavailableError(f"The API server answered {method} {path} with {problem}.") from problem


def _read(data: Mapping[str, bytes], *, ours: bool) -> Holdings:
    """Parse a Secret's data. Raises BadCertificateError."""
    bundle = data.get(AUTHORITIES, b"")
    authorities = read_authorities(bundle) if bundle else ()
    if not ours:
        return Holdings(None, None, authorities, ours=False)
    serving, coming = (
        read_serving(data[certificate], bundle) if data.get(certificate) and data.get(key) and bundle else None
        for certificate, key in ((CERTIFICATE, KEY), (COMING_CERTIFICATE, COMING_KEY))
    )
    return Holdings(serving, coming, authorities, ours=True)


def _version(thing: Mapping[str, Any]) -> object:
    return as_mapping(thing.get("metadata")).get("resourceVersion")


def _bundles(configuration: Mapping[str, Any]) -> list[bytes]:
    """The authorities of every webhook of a configuration, in PEM."""
    return [
        _decoded(as_mapping(as_mapping(webhook).get("clientConfig")).get("caBundle"))
        for webhook in as_list(configuration.get("webhooks"))
    ]


def _fingerprints(bundle: bytes) -> frozenset[str]:
    """Fingerprints of the authorities in a bundle; none for an unreadable one (a placeholder such as a line break)."""
    try:
        return frozenset(authority.fingerprint for authority in read_authorities(bundle))
    except BadCertificateError:
        return frozenset()


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        return b""
