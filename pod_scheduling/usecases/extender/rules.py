"""Time limits of the extender's decisions."""

from dataclasses import dataclass

from pod_scheduling.ports.extender import AssumeAt, Candidates


@dataclass(frozen=True, slots=True)
class ExtendRules:
    """When a decision counts, and how long things may take, in seconds.

    A bind is waited for `bind_s`; without an answer it may be carried out for `unclear_s` more. A pod that was decided
    on and is not seen on its node for `assumed_s` is looked up. Where only the filter is asked, a pod that passed it
    counts for `claim_s`; and for `binding_s` where nothing says that its scheduler has given it up, which may be making
    its volumes meanwhile, or have many others to bind first. While `binds_at_once` are under way, a question
    waits up to `pause_s`.
    """

    assume_at: AssumeAt = AssumeAt.AUTO
    candidates: Candidates = Candidates.ALL
    bind_s: float = 4.0
    unclear_s: float = 5.0
    assumed_s: float = 30.0
    claim_s: float = 30.0
    binding_s: float = 660.0
    binds_at_once: int = 32
    pause_s: float = 1.0
