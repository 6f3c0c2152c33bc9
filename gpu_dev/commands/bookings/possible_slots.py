"""Why no slot is found: what refuses such a booking at any time."""

from datetime import timedelta

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_sentence
from gpu_dev.errors import ApiError, UsageError
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.requests import make_request
from gpu_dev.wire.bookings import BookingCreate

_FOR_EVER = frozenset({"larger_than_any_node", "no_such_node"})
"""Reasons that do not pass with time, as rules for the next day or for now may."""


def check_possible(
    client: GpuDevClient, gpus: int, length: timedelta, gpu_type: str | None, nodes: int, node: str | None
) -> None:
    """Raise UsageError with what refuses such a booking at any time, such as more GPUs than a node has."""
    start = (local_now() + timedelta(days=1)).isoformat(timespec="minutes")
    fields = {"gpus": gpus, "nodes": nodes, "start": start, "duration": length}
    fields |= {name: value for name, value in (("gpu_type", gpu_type and gpu_type.lower()), ("node", node)) if value}
    try:
        client.bookings.would_book(make_request(BookingCreate, fields))
    except ApiError as refusal:
        # A type that is not here yet may be announced; a node has those that it has.
        for_ever = _FOR_EVER if node is None else _FOR_EVER | {"no_such_type"}
        broken = [rule for rule in refusal.problem.broken_rules or () if rule.code in for_ever]
        if broken:
            raise UsageError(" ".join(local_sentence(rule.detail) for rule in broken)) from refusal
