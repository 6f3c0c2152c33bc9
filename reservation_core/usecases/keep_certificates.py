"""Keep a webhook's certificate valid and trusted: level-triggered, by any number of replicas at once."""

from datetime import datetime
from typing import assert_never

import structlog

from reservation_core.domain.network.serving_certificates import CertificateStep, RenewalRules, next_step
from reservation_core.ports.serving_certificates import CertificateStore

_log = structlog.get_logger(__name__)

_MOST_STEPS = 10
"""More than any state needs; a replica that loses several races tries again later."""


async def keep_certificates(store: CertificateStore, rules: RenewalRules, now: datetime) -> None:
    """Take all steps that are possible now. Raises ChangedMeanwhileError and ClusterUnavailableError, to be retried."""
    for _ in range(_MOST_STEPS):
        holdings = await store.holdings()
        trusted = holdings is None or await store.trusted(now)
        step = next_step(holdings, trusted, rules, now)
        if step is CertificateStep.WAIT:
            return
        await _carry_out(step, store, rules, now)
        _log.info("changed the webhook's certificates", step=step.value)


async def _carry_out(step: CertificateStep, store: CertificateStore, rules: RenewalRules, now: datetime) -> None:
    match step:
        case CertificateStep.CREATE:
            await store.create(rules.names, rules.valid_for, now)
        case CertificateStep.STAGE:
            await store.stage(rules.names, rules.valid_for, now)
        case CertificateStep.TRUST:
            await store.trust(now)
        case CertificateStep.PROMOTE:
            await store.promote()
        case CertificateStep.FORGET:
            await store.forget(now)
        case CertificateStep.WAIT:
            pass
        case _:
            assert_never(step)
