"""The messages of the REST interface in classes that load quickly. All modules are generated from the contracts."""

CHECKED_HERE = frozenset({
    "JobSubmit", "ExplainRequest", "BookingCreate", "BookingChange", "ProjectCreate", "UserCreate",
})  # fmt: skip
"""Requests that most commands send. Where the bounds in their classes hold, their contracts are not asked."""
