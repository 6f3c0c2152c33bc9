"""Reports of pods that use bookings, and the answers, as bodies of REST."""

from collections.abc import Sequence

from reservation_core.contracts.schedulability import AdmissionOut, AdmissionsOut, PodSeen
from reservation_core.domain.pods.pod_reports import Judged, PodReport


def report(pod: PodSeen) -> PodReport:
    return PodReport(
        user=pod.user,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        gpus=pod.gpus,
        booking_id=pod.booking_id,
        gpu_type=pod.gpu_type,
        since=pod.since,
        ended_at=pod.ended_at,
        node=pod.node,
    )


def admissions(judged: Sequence[Judged]) -> AdmissionsOut:
    return AdmissionsOut(
        items=[
            AdmissionOut(
                uid=verdict.uid,
                outcome=verdict.outcome,
                booking_id=verdict.booking_id,
                until=verdict.until,
                reason=verdict.reason,
            )
            for verdict in judged
        ]
    )
