"""What becomes of a job that is not submitted, as a body of REST."""

from reservation_core.contracts.base import ReasonOut
from reservation_core.contracts.jobs import EstimatedStart, JobVerdict, SoonerRequest
from reservation_core.domain.planning.request_verdicts import Outlook
from reservation_core.domain.statuses import ReasonCode


def job_verdict(outlook: Outlook, *, estimates: bool) -> JobVerdict:
    """The answer to a dry run; a refused job has none, it is an error. `estimates`: this server estimates starts."""
    return JobVerdict(
        verdict=outlook.verdict,
        promised_start_at=outlook.promised_at,
        estimated_start=estimated_start(outlook),
        queue_position=outlook.position,
        reasons=[ReasonOut(code=ReasonCode(reason.code), detail=reason.detail) for reason in outlook.reasons],
        instead=sooner_requests(outlook),
        estimates=estimates,
    )


def estimated_start(outlook: Outlook) -> EstimatedStart | None:
    """When it is likely to start, if that can be told."""
    if outlook.estimated_start is None:
        return None
    return EstimatedStart(p50=outlook.estimated_start.p50, p90=outlook.estimated_start.p90)


def sooner_requests(outlook: Outlook) -> list[SoonerRequest]:
    """The nearest changes that would start sooner."""
    return [
        SoonerRequest(
            change=job.change,
            gpus=job.size.gpus,
            gpu_type=job.gpu_type,
            nodes=job.size.nodes,
            duration=job.duration,
            promised_start_at=job.promised_at,
        )
        for job in outlook.sooner
    ]
