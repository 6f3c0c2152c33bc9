"""The messages of the REST interface in classes that load quickly. All modules are generated from the contracts."""

CHECKED_HERE = frozenset({
    "JobSubmit", "ExplainRequest", "BookingCreate", "BookingChange", "ProjectCreate", "UserCreate",
    "NoticeTargetCreate", "MaintenanceCreate", "TokenBudget", "OidcProof", "KubernetesProof",
})  # fmt: skip
"""Requests that commands make. Where the bounds in their classes hold, their contracts are not asked."""
