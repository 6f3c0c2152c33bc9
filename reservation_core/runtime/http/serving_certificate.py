"""A server's certificate, reloaded when its files change.

Open connections stay; new handshakes get the new certificate. While files are half written or don't match, the previous
certificate is served.
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
    """A TLS context for a server. `taken` is called with the end (UTC) of every loaded certificate.

    `client_authority`: a file with the authorities of client certificates, which are optional; the application sees
    them in `scope["extensions"]["tls"]`.
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
        """uvicorn's settings for a server with this certificate."""
        return {"ssl_context_factory": lambda _config, _default: self.context}

    def reload(self) -> None:
        """Load the files if they have changed since the last check."""
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
            self._log_unusable(problem)
            return
        self._seen, self._current = seen, fresh
        self._taken(ends_at)
        _log.info("certificate_taken", file=str(self._certificate), ends_at=ends_at.isoformat())

    async def watch(self, every_s: float) -> None:
        """Check the files regularly."""
        while True:
            await asyncio.sleep(every_s)
            self.reload()

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        """Choose the current certificate in every handshake, with or without a host name."""
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _bare_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._client_authority is not None:
            # Optional, as health checks have no certificate.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _log_unusable(self, problem: Exception) -> None:
        # Every problem is logged once, however often the files are checked.
        description = f"{type(problem).__name__}: {problem}".encode()
        if description != self._seen:
            self._seen = description
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
