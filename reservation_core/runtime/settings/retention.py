"""Settings of the retention."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from reservation_core.domain.history.retention import RetentionRules
from reservation_core.runtime.settings.section import Section

_Days = Annotated[float, Field(ge=0, le=365_000)]
_Bytes = Annotated[int, Field(ge=0, le=2**60)]


class RetentionSettings(Section):
    """How long ended objects are kept, in days, and the size of logs, in bytes; 0: no bound."""

    events_days: _Days = 400  # how long the audit log is kept, by whole months; 0: for ever
    jobs_days: _Days = 400  # how long ended jobs, bookings and maintenance windows are kept; 0: for ever
    allocations_days: _Days = 400  # how long GPUs and promised starts of jobs are kept; sums of usage stay; 0: for ever
    dead_letters_days: _Days = 30  # how long messages that could not be handled are kept; 0: for ever
    # How long answers to repeated requests are kept; 0: for ever; none: GPU_DEV_IDEMPOTENCY_KEEP_S.
    idempotency_days: _Days | None = None
    # How long files of jobs are kept after their last use
    files_days: Annotated[float, Field(ge=1, le=365_000)] = 30
    # How long output of pods that are gone is kept; 0: for ever; none: GPU_DEV_LOG_KEEP_S
    logs_days: _Days | None = None
    # On a local cluster: the largest log of one attempt of a job; the middle of a longer one is left out.
    log_bytes_per_job: _Bytes = 64 * 2**20
    # On a local cluster: all logs together; the oldest logs of ended jobs are removed first; 0: no bound.
    log_bytes: _Bytes = 10 * 2**30
    look_s: Annotated[float, Field(gt=0, le=86_400)] = 30  # time between two looks for what is old enough to be removed

    def rules(self, *, idempotency_s: float, logs_s: float) -> RetentionRules:
        """The retention rules; the older settings give two of the times."""
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
            files=timedelta(days=self.files_days),
        )


def _kept(days: float) -> timedelta | None:
    return timedelta(days=days) if days else None
