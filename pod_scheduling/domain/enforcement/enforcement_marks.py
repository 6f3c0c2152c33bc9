"""Marks that the webhook writes on pods where bookings are enforced. It removes those that a user brings."""

from typing import Final

TERMINATE_AT: Final = "gpu-dev/terminate-at"
"""When the pod has to go: RFC 3339, UTC."""

BOOKING: Final = "gpu-dev/booking"
"""The booking under which it was admitted."""

OWNER: Final = "gpu-dev/owner"
"""The user whose it is, as the webhook found out."""

PREEMPTIBLE: Final = "gpu-dev/preemptible"
"""`true`: it goes when a booking needs its cards."""

ENFORCEMENT_MARKS: Final = (TERMINATE_AT, BOOKING, OWNER, PREEMPTIBLE)
