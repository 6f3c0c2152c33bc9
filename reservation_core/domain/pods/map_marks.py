"""What the webhook writes on a pod that has a scheduling map, and the scheduler reads.

Only the webhook writes these annotations: what a user brings is overwritten or removed. They say what was read; what
counts are the variables of the pod's containers, which nobody can change once the pod exists.
"""

from typing import Final

MAP_INDEX: Final = "gpu-dev/map-index"
"""The index that the pod was found to have."""

MAP_NODE: Final = "gpu-dev/map-node"
"""The node of its entry, as the map names it."""

MAP_DEVICES: Final = "gpu-dev/map-devices"
"""The cards of its entry: the value of CUDA_VISIBLE_DEVICES, empty for `none`."""

MAP_DIGEST: Final = "gpu-dev/map-digest"
"""The digest of the map's text (`scheduling_map.map_digest`)."""

MAP_OWNER: Final = "gpu-dev/map-owner"
"""Who asked for the pod, as the API server has authenticated them: a person, or the controller of a set of pods."""

MAP_MARKS: Final = (MAP_INDEX, MAP_NODE, MAP_DEVICES, MAP_DIGEST, MAP_OWNER)

CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
"""In every container. A variable whose value is empty comes back from the API server without `value`."""

CUDA_DEVICE_ORDER: Final = "CUDA_DEVICE_ORDER"
DEVICE_ORDER: Final = "PCI_BUS_ID"
"""The order in which the driver's tools number cards; CUDA's own default is by speed."""

SCHEDULER_NAME: Final = "gpu-scheduler"
"""`spec.schedulerName` of the pods that both take care of, unless settings say otherwise."""
