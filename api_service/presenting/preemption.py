"""What a job says of its end, as REST shows it."""

from reservation_core.contracts.base import EndSignalOut, PreemptionOut
from reservation_core.domain.model import Preemption


def preemption(terms: Preemption) -> PreemptionOut | None:
    """How a preemptible job keeps its GPUs; None for others."""
    if not terms.preemptible:
        return None
    return PreemptionOut(min_runtime=terms.min_runtime, done=terms.times, asked_at=terms.asked_at)


def end_signal(terms: Preemption) -> EndSignalOut | None:
    """The signal before its end, if any."""
    signal = terms.end_signal
    return None if signal is None else EndSignalOut(signal=signal.signal, before=signal.before)


def accepted_preemption(terms: Preemption) -> dict[str, object]:
    """Both as JSON of a job that was just accepted; what is None is left out."""
    both = {"preemption": preemption(terms), "end_signal": end_signal(terms)}
    return {name: shown.model_dump(mode="json") for name, shown in both.items() if shown is not None}
