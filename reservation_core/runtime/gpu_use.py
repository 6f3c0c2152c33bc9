"""What looks at the use of GPUs, by the settings."""

from typing import assert_never

from reservation_core.adapters.local.gpu_use.nvml_sampler import NvmlSampler
from reservation_core.adapters.local.gpu_use.playback import Playback
from reservation_core.adapters.local.inventory import BadGpusSettingError, LocalInventory
from reservation_core.domain.gpu_use.recordings import BadRecordingError
from reservation_core.ports.gpu_use import GpuSampler
from reservation_core.runtime.settings.components import ClusterKind, CommonSettings
from reservation_core.runtime.settings.error import SettingsError

NVML_LIMIT_S = 3.0
"""How long one look waits for the driver."""


def open_gpu_sampler(settings: CommonSettings) -> GpuSampler | None:
    """What samples the cluster's GPUs; None where there are no samples. Raises SettingsError."""
    match settings.cluster:
        case ClusterKind.LOCAL:
            return open_driver(settings)
        case ClusterKind.KUBERNETES:
            if settings.kubernetes.agent_port is None:
                return None
            from reservation_core.runtime import kubernetes  # noqa: PLC0415 -- loads the client, see wiring.py

            return kubernetes.open_agent_samples(settings, settings.kubernetes.agent_port)
        case _:
            assert_never(settings.cluster)


def open_driver(settings: CommonSettings, node: str | None = None) -> GpuSampler | None:
    """The driver for real GPUs of this machine, or a recording for simulated ones of a node; None without a recording.

    Raises SettingsError.
    """
    try:
        inventory = LocalInventory(settings.local_gpus, node)
        if settings.local_use is None:
            return None if inventory.simulated else NvmlSampler(NVML_LIMIT_S)
        if not inventory.simulated:
            raise SettingsError(
                "GPU_DEV_LOCAL_USE plays samples back for simulated GPUs only. Set GPU_DEV_LOCAL_GPUS, for example "
                "GPU_DEV_LOCAL_GPUS=h100:4, or unset GPU_DEV_LOCAL_USE."
            )
        return Playback(settings.local_use, inventory.nodes())
    except BadGpusSettingError as error:
        raise SettingsError(str(error)) from error
    except BadRecordingError as error:
        raise SettingsError(f"GPU_DEV_LOCAL_USE={settings.local_use}: {error}") from error
