"""The certificate that a server shows, taken from files anew whenever they change.

Connections that are open stay as they are; new handshakes get the new certificate. Files that are half written, or
don't belong together, change nothing: the one before is served on.
"""

import asyncio
import hashlib
import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import structlog
from cryptography import x509

_log = structlog.get_logger(__name__)


class ServingCertificate:
    """A TLS context for a server. `taken` is called with the end (UTC) of each certificate taken into use.

    `client_authority`: a file with whoever signs the certificates that clients may show. Those that show none are let
    in nevertheless; the application sees which did (`scope["extensions"]["tls"]`).
    """

    def __init__(
        self, certificate: Path, key: Path, taken: Callable[[datetime], None], client_authority: Path | None = None
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self._taken = taken
        self._seen: bytes | None = None
        self._current: ssl.SSLContext | None = None
        self.context = self._bare_context()
        self.context.sni_callback = self._choose

    @property
    def loaded(self) -> bool:
        """Whether handshakes can succeed."""
        return self._current is not None

    def shown(self) -> dict[str, Any]:
        """uvicorn's settings for a server that shows it."""
        return {"ssl_context_factory": lambda _config, _default: self.context}

    def look(self) -> None:
        """Take the files' certificate into use if they have changed since the last look."""
        try:
            content = self._certificate.read_bytes()
            others = [path.read_bytes() for path in (self._key, self._client_authority) if path is not None]
            seen = hashlib.sha256(b"\0".join((content, *others))).digest()
            if seen == self._seen:
                return
            fresh = self._bare_context()
            fresh.load_cert_chain(self._certificate, self._key, password=_no_password)
            if self._client_authority is not None:
                fresh.load_verify_locations(self._client_authority)
            ends_at = x509.load_pem_x509_certificate(content).not_valid_after_utc
        except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
            self._refused(problem)
            return
        self._seen, self._current = seen, fresh
        self._taken(ends_at)
        _log.info("certificate_taken", file=str(self._certificate), ends_at=ends_at.isoformat())

    async def watch(self, every_s: float) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(every_s)
            self.look()

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        """Called in every handshake, whether the client names a host or not."""
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _bare_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._client_authority is not None:
            # Asked for in each handshake, but by health checks none is shown.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _refused(self, problem: Exception) -> None:
        # Said once for each thing that is wrong, however often it is looked at.
        told = f"{type(problem).__name__}: {problem}".encode()
        if told != self._seen:
            self._seen = told
            _log.warning(
                "certificate_unusable",
                file=str(self._certificate),
                key=str(self._key),
                client_authority=None if self._client_authority is None else str(self._client_authority),
                problem=str(problem),
                serving="the one before" if self.loaded else "nothing yet",
            )


def _no_password() -> NoReturn:
    raise ValueError("the key is encrypted; write it without a password")
