"""Where quotas by model come from: an object in the cluster; what can't be read leaves the last good ones in force."""

from collections.abc import Callable
from typing import assert_never

import structlog

from pod_scheduling.domain.extender.model_quotas import NO_QUOTAS, BadQuotasError, ModelQuotas, loosened, read_quotas
from pod_scheduling.domain.extender.model_usage import ModelUsage
from pod_scheduling.ports.card_cluster import CardCluster, QuotasGone, QuotasSeen

_log = structlog.get_logger(__name__)


class QuotaSource:
    """Takes quotas in as they are seen.

    `problem` says why the object can't be used as it is now. Not `known`: it never could be, and nobody may be let
    through in the meantime. `on_loosened` is told the namespaces whose pods may go now where they might not before.
    """

    def __init__(self, cluster: CardCluster, usage: ModelUsage, on_loosened: Callable[[frozenset[str]], None]) -> None:
        self._cluster = cluster
        self._usage = usage
        self._on_loosened = on_loosened
        self._last: str | None = None
        self.known = False
        self.problem: str | None = None
        self.rejected = 0

    def see(self, sight: QuotasSeen | QuotasGone) -> None:
        """Take in the ConfigMap."""
        match sight:
            case QuotasGone():
                self._none()
            case QuotasSeen():
                self._some(sight)
            case _:
                assert_never(sight)

    def _none(self) -> None:
        if not self.known or self._usage.quotas is not NO_QUOTAS:
            _log.warning("there are no GPU quotas: every namespace may use every GPU")
        self.problem, self._last = None, None
        self._take(NO_QUOTAS)

    def _some(self, sight: QuotasSeen) -> None:
        uid, text = sight.uid, sight.text
        if text is not None and text == self._last and self.known and self.problem is None:
            return
        try:
            quotas = self._read(sight)
        except BadQuotasError as problem:
            if str(problem) != self.problem:
                self._reject(uid, str(problem))
            return
        mended = self.problem is not None
        self.problem, self._last = None, text
        self._take(quotas)
        _log.info("gpu quotas read", namespaces=len(quotas.namespaces))
        if mended:
            self._cluster.add_quota_event(uid, "QuotasRead", "The quotas can be read again, and count.", warning=False)

    def _take(self, quotas: ModelQuotas) -> None:
        before, self._usage.quotas = self._usage.quotas, quotas
        self.known = True
        if looser := loosened(before, quotas):
            self._on_loosened(looser)

    def _reject(self, uid: str, problem: str) -> None:
        self.problem = problem
        self.rejected += 1
        kept = "the last ones that could be read go on" if self.known else "nothing is scheduled until they can be read"
        _log.error("the gpu quotas can't be read", why=problem, kept=kept)
        self._cluster.add_quota_event(uid, "BadQuotas", f"The quotas can't be read: {problem}; {kept}.", warning=True)

    @staticmethod
    def _read(sight: QuotasSeen) -> ModelQuotas:
        if sight.text is None:
            raise BadQuotasError(f"they are to stand under the key {sight.key}, and there is none")
        return read_quotas(sight.text)
