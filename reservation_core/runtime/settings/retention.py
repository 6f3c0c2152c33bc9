"""Settings of what is removed when it is old."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from reservation_core.domain.history.retention import RetentionRules
from reservation_core.runtime.settings.section import Section

_Days = Annotated[float, Field(ge=0, le=365_000)]
_Bytes = Annotated[int, Field(ge=0, le=2**60)]


class RetentionSettings(Section):
    """How long things are kept after they are over, in days, and how much of logs, in bytes; 0: for ever, and all."""

    events_days: _Days = 400  # the audit log, by whole months
    jobs_days: _Days = 400  # jobs with their workloads, bookings and maintenance windows
    allocations_days: _Days = 400  # which GPUs they had, and what they were promised; sums of usage stay
    dead_letters_days: _Days = 30
    idempotency_days: _Days | None = None  # answers to repeated requests; None: as GPU_DEV_IDEMPOTENCY_KEEP_S says
    logs_days: _Days | None = None  # None: as GPU_DEV_LOG_KEEP_S says
    # On a local cluster: what is kept of the output of one job's attempt, and of all jobs together.
    log_bytes_per_job: _Bytes = 64 * 2**20
    log_bytes: _Bytes = 10 * 2**30
    look_s: Annotated[float, Field(gt=0, le=86_400)] = 30  # whoever leads looks so often

    def rules(self, *, idempotency_s: float, logs_s: float) -> RetentionRules:
        """What they come to, with what the older settings say for these two."""
        return RetentionRules(
            events=_kept(self.events_days),
            jobs=_kept(self.jobs_days),
            allocations=_kept(self.allocations_days),
            logs=timedelta(seconds=logs_s) if self.logs_days is None else _kept(self.logs_days),
            dead_letters=_kept(self.dead_letters_days),
            idempotency=timedelta(seconds=idempotency_s)
            if self.idempotency_days is None
            else _kept(self.idempotency_days),
            log_bytes=self.log_bytes or None,
        )


def _kept(days: float) -> timedelta | None:
    return timedelta(days=days) if days else None
