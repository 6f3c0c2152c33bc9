"""Where a webhook's certificates are kept, and who has to trust them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from reservation_core.domain.network.serving_certificates import Holdings


class ChangedMeanwhileError(Exception):
    """Somebody else wrote there between our look and our change; nothing was done. Look again."""


class CertificateStore(Protocol):
    """One webhook's certificates. Writes are decided on what `holdings` last gave.

    All methods raise ClusterUnavailableError; those that write raise ChangedMeanwhileError, too.
    """

    async def holdings(self) -> Holdings | None:
        """Read the stored holdings; None for nothing."""
        ...

    async def trusted(self, now: datetime) -> bool:
        """Whether every webhook configuration that exists names exactly the authorities that have not ended."""
        ...

    async def create(self, names: Iterable[str], valid_for: timedelta, now: datetime) -> None:
        """Make a certificate and use it at once."""
        ...

    async def stage(self, names: Iterable[str], valid_for: timedelta, now: datetime) -> None:
        """Make the certificate to come, and add its authority."""
        ...

    async def trust(self, now: datetime) -> None:
        """Write the authorities that have not ended into the webhook configurations."""
        ...

    async def promote(self) -> None:
        """Use the certificate to come."""
        ...

    async def forget(self, now: datetime) -> None:
        """Take out the authorities that have ended."""
        ...
