"""When a webhook's certificate is made, renewed and taken into use, so that no call ever meets one it can't check.

The Secret is the only truth: it holds the certificate in use, perhaps the one to come, and every authority that is to
be trusted. A new certificate comes with an authority of its own, is trusted everywhere first, and is used only after
that had time to spread. Each step can be lost, done twice, or done by two replicas at once.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving certificate. `authority` is the fingerprint of the one that signed it, `made_at` in UTC."""

    names: frozenset[str]
    made_at: datetime
    ends_at: datetime
    authority: str


@dataclass(frozen=True, slots=True)
class Authority:
    """A trusted authority, by fingerprint, and until when."""

    fingerprint: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a Secret holds. What others put there (`ours` is false) is never renewed, only trusted."""

    serving: Serving | None
    coming: Serving | None
    authorities: tuple[Authority, ...]
    ours: bool


@dataclass(frozen=True, slots=True)
class RenewalRules:
    """`names` that the certificate has to hold; `settle` is how long trust takes to reach every API server."""

    names: frozenset[str]
    valid_for: timedelta
    renew_before: timedelta
    settle: timedelta


class CertificateStep(Enum):
    """The next step; after it, look again."""

    CREATE = "create"
    """Nothing usable is there: make a certificate and use it at once."""
    STAGE = "stage"
    """Make the certificate to come, and put its authority beside those that are trusted."""
    TRUST = "trust"
    """Write the authorities into the webhook configurations."""
    PROMOTE = "promote"
    """Use the certificate to come."""
    FORGET = "forget"
    """Take authorities out that have ended."""
    WAIT = "wait"


def next_step(holdings: Holdings | None, trusted: bool, rules: RenewalRules, now: datetime) -> CertificateStep:
    """The step that brings a Secret on. `trusted`: the configurations name exactly its living authorities."""
    if holdings is None:
        return CertificateStep.CREATE
    if not holdings.ours:
        return CertificateStep.WAIT if trusted or not holdings.authorities else CertificateStep.TRUST
    living = authorities_alive(holdings, now)
    if not _usable(holdings.serving, living, now):
        return CertificateStep.CREATE
    if len(living) < len(holdings.authorities):
        return CertificateStep.FORGET
    if not trusted:
        return CertificateStep.TRUST
    coming = holdings.coming
    if coming is not None and _usable(coming, living, now) and rules.names <= coming.names:
        return CertificateStep.PROMOTE if now >= coming.made_at + rules.settle else CertificateStep.WAIT
    return CertificateStep.STAGE if _due(holdings.serving, rules, now) else CertificateStep.WAIT


def authorities_alive(holdings: Holdings, now: datetime) -> frozenset[str]:
    """The fingerprints of the authorities that have not ended."""
    return frozenset(authority.fingerprint for authority in holdings.authorities if authority.ends_at > now)


def _usable(serving: Serving | None, living: AbstractSet[str], now: datetime) -> bool:
    return serving is not None and serving.ends_at > now and serving.authority in living


def _due(serving: Serving | None, rules: RenewalRules, now: datetime) -> bool:
    return serving is None or not rules.names <= serving.names or now >= serving.ends_at - rules.renew_before
