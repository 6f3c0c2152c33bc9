"""From the API's Namespace objects with the label by which bookings are enforced to what counts of them."""

from pod_scheduling.ports.pod_binding import NamespaceSeen
from reservation_core.adapters.kubernetes.api_server.object_watch import SeenObject


def namespace_sight(seen: SeenObject) -> NamespaceSeen:
    """A namespace of those that have the label, or not any more."""
    return NamespaceSeen(seen.name, enforced=not seen.gone)
