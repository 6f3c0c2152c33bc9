"""The working one of several replicas: a Lease object, renewed by its holder, taken over when it is not.

As client-go does it: the holder's clock is never compared with ours. A lease has run out when it has not changed for
its whole duration, as measured here since it was seen to change. The lease holder stops by itself well before another
can take over.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ConflictError, ObjectNotFoundError
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping, written_time
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """Seconds: a lease lasts `duration_s`, its holder gives up after `renew_within_s` without renewing, and everybody
    looks every `retry_s`."""

    duration_s: float = 15.0
    renew_within_s: float = 10.0
    retry_s: float = 2.0


class Lease:
    """One candidate for one lease. `holds` is true only while nobody else can have it."""

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
        """Whether the work is ours now."""
        return self.left_s() > 0

    def left_s(self) -> float:
        """For how many seconds from now on it is surely ours; 0 or less: it is not."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._rules.renew_within_s - self._monotonic()

    async def keep(self, gained: Callable[[], None], may_give_back: Callable[[], bool]) -> None:
        """Try to have it, and to keep it, until cancelled; then give it back, if it may be.

        `gained` is called whenever it is ours anew: also when it had lapsed meanwhile, however shortly.
        """
        held = False
        try:
            while True:
                anew = await self._look()
                if anew and self.holds():
                    _log.info("leading", lease=self._name, identity=self._identity)
                    gained()
                elif held and not self.holds():
                    _log.warning("no longer leading", lease=self._name, identity=self._identity)
                held = self.holds()
                await asyncio.sleep(self._rules.retry_s * random.uniform(0.8, 1.2))  # noqa: S311 -- spreads load
        finally:
            if may_give_back():
                await self._give_back()

    async def _look(self) -> bool:
        """Try once; whether it is ours now and was not all the time since it was last renewed."""
        begun = self._monotonic()
        try:
            async with asyncio.timeout(self._rules.renew_within_s / 2):
                if await self._taken():
                    anew = not self._was_ours or not self.holds()
                    self._renewed_at = begun  # from before the request: the lease cannot have begun earlier
                    return anew
        except (ApiServerError, ClusterUnavailableError, TimeoutError) as problem:
            _log.warning("the lease could not be renewed", lease=self._name, why=str(problem) or "no answer in time")
        return False

    async def _taken(self) -> bool:
        """Whether it is ours after this attempt."""
        try:
            found = await self._transport.request("GET", f"{self._path}/{self._name}")
        except ObjectNotFoundError:
            self._was_ours = False
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            return await self._written("POST", self._path, {**body, "spec": self._spec({})})
        spec = as_mapping(found.get("spec"))
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._monotonic()
        holder = spec.get("holderIdentity")
        self._was_ours = holder == self._identity
        lasts = spec.get("leaseDurationSeconds")
        lasts_s = float(lasts) if isinstance(lasts, int) else self._rules.duration_s
        if holder not in (None, "", self._identity) and self._monotonic() - self._seen_at < lasts_s:
            self._renewed_at = None
            return False
        return await self._written("PUT", f"{self._path}/{self._name}", {**found, "spec": self._spec(spec)})

    async def _written(self, method: str, path: str, body: Mapping[str, Any]) -> bool:
        try:
            answered = await self._transport.request(method, path, body=body)
        except ConflictError:
            return False  # somebody else was quicker, or an earlier attempt of ours got through: the next look says
        self._seen, self._seen_at = as_mapping(answered.get("spec")), self._monotonic()
        return True

    def _spec(self, former: Mapping[str, Any]) -> dict[str, Any]:
        now = written_time(self._clock.now())
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

    async def _give_back(self) -> None:
        """So that another need not wait until it runs out; if that fails, they wait."""
        if not self.holds():
            return
        self._renewed_at = None
        try:
            async with asyncio.timeout(self._rules.retry_s):
                found = await self._transport.request("GET", f"{self._path}/{self._name}")
                spec = as_mapping(found.get("spec"))
                if spec.get("holderIdentity") == self._identity:
                    freed = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._transport.request("PUT", f"{self._path}/{self._name}", body={**found, "spec": freed})
        except (ApiServerError, ClusterUnavailableError, TimeoutError) as problem:
            _log.warning("the lease was not given back", lease=self._name, why=str(problem) or "no answer in time")

    @staticmethod
    def _monotonic() -> float:
        return asyncio.get_running_loop().time()
