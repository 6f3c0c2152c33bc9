"""The stored policy, and projects."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.policy.limits import Policy, PolicyRule


@dataclass(frozen=True, slots=True)
class StoredRule:
    """The stored rule of one scope. `from_file`: it comes from the policy file, which may change or delete it."""

    rule: PolicyRule
    from_file: bool
    version: int
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class CurrentPolicy:
    """All rules, and the number of the last change."""

    policy: Policy
    revision: int


@dataclass(frozen=True, slots=True)
class Project:
    """A group of users who hold GPUs for a common purpose; members by name."""

    name: str
    title: str | None
    created_at: datetime
    members: tuple[str, ...]
