"""From the API's Namespace objects with the label by which bookings are enforced to what counts of them."""

from pod_scheduling.ports.pod_binding import NamespaceSeen
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject


def namespace_sight(seen: ObservedObject) -> NamespaceSeen:
    """Read a namespace with the label, or one that has lost it."""
    return NamespaceSeen(seen.name, enforced=not seen.gone)
