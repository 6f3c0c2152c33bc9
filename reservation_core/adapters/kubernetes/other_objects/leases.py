"""Leader election among replicas with a Lease object.

As in client-go, the lease holder's clock is never compared with ours: a lease has expired when we have seen no change
of it for its whole duration. The lease holder stops by itself well before another replica can take over.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ConflictError, ObjectNotFoundError
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping, format_time
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """Seconds: the lease's duration, the time from a renewal until the holder stops, and between attempts."""

    duration_s: float = 15.0
    renew_within_s: float = 10.0
    retry_s: float = 2.0


class Lease:
    """One candidate for one lease. `holds` is true only while no other candidate can hold it."""

    def __init__(
        self, transport: Transport, clock: Clock, namespace: str, name: str, identity: str, rules: LeaseRules
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._identity = identity
        self._rules = rules
        self._seen: Mapping[str, Any] = {}
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._was_ours = False

    def holds(self) -> bool:
        """Whether we are the lease holder now."""
        return self.left_s() > 0

    def left_s(self) -> float:
        """The seconds for which we surely stay lease holder; 0 or less: we are not."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._rules.renew_within_s - self._monotonic()

    async def keep(self, gained: Callable[[], None], may_give_back: Callable[[], bool]) -> None:
        """Acquire and renew the lease until cancelled; then release it, if `may_give_back`.

        `gained` is called at every acquisition, also after a short lapse.
        """
        held = False
        try:
            while True:
                anew = await self._try_to_hold()
                if anew and self.holds():
                    _log.info("leading", lease=self._name, identity=self._identity)
                    gained()
                elif held and not self.holds():
                    _log.warning("no longer leading", lease=self._name, identity=self._identity)
                held = self.holds()
                await asyncio.sleep(self._rules.retry_s * random.uniform(0.8, 1.2))  # noqa: S311 -- spreads load
        finally:
            if may_give_back():
                await self._release()

    async def _try_to_hold(self) -> bool:
        """Try once to acquire or renew; whether the lease is newly acquired."""
        begun = self._monotonic()
        try:
            async with asyncio.timeout(self._rules.renew_within_s / 2):
                if await self._acquire_or_renew():
                    anew = not self._was_ours or not self.holds()
                    self._renewed_at = begun  # from before the request: the lease cannot have begun earlier
                    return anew
        except (ApiServerError, ClusterUnavailableError, TimeoutError) as problem:
            _log.warning("the lease could not be renewed", lease=self._name, why=str(problem) or "no answer in time")
        return False

    async def _acquire_or_renew(self) -> bool:
        """Whether we hold the lease after this attempt."""
        try:
            lease = await self._transport.request("GET", f"{self._path}/{self._name}")
        except ObjectNotFoundError:
            self._was_ours = False
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            return await self._write("POST", self._path, {**body, "spec": self._spec({})})
        spec = as_mapping(lease.get("spec"))
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._monotonic()
        holder = spec.get("holderIdentity")
        self._was_ours = holder == self._identity
        lasts = spec.get("leaseDurationSeconds")
        lasts_s = float(lasts) if isinstance(lasts, int) else self._rules.duration_s
        if holder not in (None, "", self._identity) and self._monotonic() - self._seen_at < lasts_s:
            self._renewed_at = None
            return False
        return await self._write("PUT", f"{self._path}/{self._name}", {**lease, "spec": self._spec(spec)})

    async def _write(self, method: str, path: str, body: Mapping[str, Any]) -> bool:
        try:
            lease = await self._transport.request(method, path, body=body)
        except ConflictError:
            return False  # another candidate was faster, or an earlier attempt of ours succeeded: the next one decides
        self._seen, self._seen_at = as_mapping(lease.get("spec")), self._monotonic()
        return True

    def _spec(self, former: Mapping[str, Any]) -> dict[str, Any]:
        now = format_time(self._clock.now())
        ours = former.get("holderIdentity") == self._identity
        changes = former.get("leaseTransitions")
        changes = changes if isinstance(changes, int) else 0
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._rules.duration_s)),
            "acquireTime": former.get("acquireTime") if ours else now,
            "renewTime": now,
            "leaseTransitions": changes if ours or not former else changes + 1,
        }

    async def _release(self) -> None:
        """Release the lease, so that another candidate need not wait until it expires."""
        if not self.holds():
            return
        self._renewed_at = None
        try:
            async with asyncio.timeout(self._rules.retry_s):
                lease = await self._transport.request("GET", f"{self._path}/{self._name}")
                spec = as_mapping(lease.get("spec"))
                if spec.get("holderIdentity") == self._identity:
                    freed = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._transport.request("PUT", f"{self._path}/{self._name}", body={**lease, "spec": freed})
        except (ApiServerError, ClusterUnavailableError, TimeoutError) as problem:
            _log.warning("the lease was not released", lease=self._name, why=str(problem) or "no answer in time")

    @staticmethod
    def _monotonic() -> float:
        return asyncio.get_running_loop().time()
