"""Annotations that the webhook writes on a pod with a scheduling map, and that the scheduler reads.

A user's own values are overwritten or removed. The annotations record what was read; the scheduler decides by the
variables of the pod's containers, which nobody can change once the pod exists.
"""

from typing import Final

MAP_INDEX: Final = "gpu-dev/map-index"
"""The pod's index in the map."""

MAP_NODE: Final = "gpu-dev/map-node"
"""The node of its entry, by the map's name."""

MAP_DEVICES: Final = "gpu-dev/map-devices"
"""The GPUs of its entry: the value of CUDA_VISIBLE_DEVICES, empty for `none`."""

MAP_DIGEST: Final = "gpu-dev/map-digest"
"""The digest of the map's text (`scheduling_map.map_digest`)."""

MAP_OWNER: Final = "gpu-dev/map-owner"
"""The authenticated creator of the pod: a person, or the controller of a set of pods."""

MAP_MARKS: Final = (MAP_INDEX, MAP_NODE, MAP_DEVICES, MAP_DIGEST, MAP_OWNER)

CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
"""In every container. The API server drops an empty `value`."""

CUDA_DEVICE_ORDER: Final = "CUDA_DEVICE_ORDER"
DEVICE_ORDER: Final = "PCI_BUS_ID"
"""The order of the driver's tools; CUDA's own default is by speed."""

SCHEDULER_NAME: Final = "gpu-scheduler"
"""The default `spec.schedulerName` of pods with a scheduling map."""
