"""Storage of a webhook's certificates, and trust in them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from reservation_core.domain.network.serving_certificates import Holdings


class ChangedMeanwhileError(Exception):
    """Another process wrote between our read and our write; nothing was done. Read again."""


class CertificateStore(Protocol):
    """One webhook's certificates. Writes depend on the last result of `holdings`.

    All methods raise ClusterUnavailableError; those that write also raise ChangedMeanwhileError.
    """

    async def holdings(self) -> Holdings | None:
        """Read the stored holdings; None if there are none."""

    async def trusted(self, now: datetime) -> bool:
        """Whether every existing webhook configuration names exactly the unexpired authorities."""

    async def create(self, names: Iterable[str], valid_for: timedelta, now: datetime) -> None:
        """Make a certificate and use it at once."""

    async def stage(self, names: Iterable[str], valid_for: timedelta, now: datetime) -> None:
        """Make the next certificate, and add its authority."""

    async def trust(self, now: datetime) -> None:
        """Write the unexpired authorities into the webhook configurations."""

    async def promote(self) -> None:
        """Use the next certificate."""

    async def forget(self, now: datetime) -> None:
        """Remove expired authorities."""
