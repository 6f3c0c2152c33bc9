"""The policy as it is stored, projects, and what counts against quotas."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.policy.limits import Policy, PolicyRule


@dataclass(frozen=True, slots=True)
class StoredRule:
    """One scope's rules, as they are stored. `from_file`: the policy file made it, and may change or drop it."""

    rule: PolicyRule
    from_file: bool
    version: int
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class CurrentPolicy:
    """Every rule, and the number of the last change."""

    policy: Policy
    revision: int


@dataclass(frozen=True, slots=True)
class Project:
    """People who hold GPUs for a common purpose; members by name."""

    name: str
    title: str | None
    created_at: datetime
    members: tuple[str, ...]
