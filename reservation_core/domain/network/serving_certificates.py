"""When a webhook's certificate is made, renewed and used, so that the API server can verify it at any time.

The Secret is the only truth: it holds the certificate in use, perhaps the next one, and all trusted authorities. A new
certificate comes with its own authority, which is trusted everywhere first; the certificate is used only after that had
time to spread. Each step may be lost, repeated, or done by two replicas at once.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving certificate. `authority` is the fingerprint of its signer, `made_at` in UTC."""

    names: frozenset[str]
    made_at: datetime
    ends_at: datetime
    authority: str


@dataclass(frozen=True, slots=True)
class Authority:
    """A trusted authority, by fingerprint, and its expiry."""

    fingerprint: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Holdings:
    """The content of a Secret. A certificate of others (`ours` is false) is never renewed, only trusted."""

    serving: Serving | None
    coming: Serving | None
    authorities: tuple[Authority, ...]
    ours: bool


@dataclass(frozen=True, slots=True)
class RenewalRules:
    """`names` that the certificate must have; `settle` is how long trust takes to reach every API server."""

    names: frozenset[str]
    valid_for: timedelta
    renew_before: timedelta
    settle: timedelta


class CertificateStep(Enum):
    """The next step; after it, decide again."""

    CREATE = "create"
    """Nothing usable exists: make a certificate and use it at once."""
    STAGE = "stage"
    """Make the next certificate, and trust its authority, too."""
    TRUST = "trust"
    """Write the authorities into the webhook configurations."""
    PROMOTE = "promote"
    """Use the next certificate."""
    FORGET = "forget"
    """Remove expired authorities."""
    WAIT = "wait"


def next_step(holdings: Holdings | None, trusted: bool, rules: RenewalRules, now: datetime) -> CertificateStep:
    """The step that brings a Secret on. `trusted`: the webhook configurations name exactly its valid authorities."""
    if holdings is None:
        return CertificateStep.CREATE
    if not holdings.ours:
        return CertificateStep.WAIT if trusted or not holdings.authorities else CertificateStep.TRUST
    valid = authorities_alive(holdings, now)
    if not _usable(holdings.serving, valid, now):
        return CertificateStep.CREATE
    if len(valid) < len(holdings.authorities):
        return CertificateStep.FORGET
    if not trusted:
        return CertificateStep.TRUST
    coming = holdings.coming
    if coming is not None and _usable(coming, valid, now) and rules.names <= coming.names:
        return CertificateStep.PROMOTE if now >= coming.made_at + rules.settle else CertificateStep.WAIT
    return CertificateStep.STAGE if _due(holdings.serving, rules, now) else CertificateStep.WAIT


def authorities_alive(holdings: Holdings, now: datetime) -> frozenset[str]:
    """The fingerprints of the authorities that have not expired."""
    return frozenset(authority.fingerprint for authority in holdings.authorities if authority.ends_at > now)


def _usable(serving: Serving | None, authorities: AbstractSet[str], now: datetime) -> bool:
    return serving is not None and serving.ends_at > now and serving.authority in authorities


def _due(serving: Serving | None, rules: RenewalRules, now: datetime) -> bool:
    return serving is None or not rules.names <= serving.names or now >= serving.ends_at - rules.renew_before
