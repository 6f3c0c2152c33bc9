"""From settings to an extender that answers: the cluster, quotas, lease and ledger behind it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reservation_core.ports.extender import Extender
from reservation_core.runtime.settings_admission import AdmissionSettings


@dataclass(frozen=True, slots=True)
class RunningExtender:
    """What answers schedulers, and how it is."""

    extender: Extender

    def ready(self) -> bool:
        """Whether schedulers may be sent here: everything was seen, and this replica leads where one has to."""
        raise NotImplementedError

    def problems(self) -> list[str]:
        """Sentences about what is wrong and does not keep it from answering, such as a ConfigMap that can't be read."""
        raise NotImplementedError

    def numbers(self) -> Mapping[str, float]:
        """Counters (`…_total`) and gauges for /metrics, by name without the prefix."""
        raise NotImplementedError


@asynccontextmanager
async def run_extender(settings: AdmissionSettings) -> AsyncIterator[RunningExtender]:
    """An extender that follows the cluster as long as the block runs.

    Raises SettingsError for a kubeconfig that can't be used. An error of any of its parts ends the block.
    """
    raise NotImplementedError(settings)
    yield
