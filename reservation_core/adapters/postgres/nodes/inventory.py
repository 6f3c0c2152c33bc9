"""Nodes and GPUs in PostgreSQL: written in batches when the cluster's report differs, and read with their holders."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.adapters.postgres.nodes.cards_now import node_now_of
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.domain.cards.inventory import InventoryChange, KnownGpu, KnownNode, Reconciliation, reconcile
from reservation_core.domain.cards.link_words import read_links
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.changes import SYSTEM
from reservation_core.domain.model import ForeignPod, GpuCondition
from reservation_core.domain.request_terms import Share
from reservation_core.domain.statuses import GpuState
from reservation_core.ports.nodes.cards_now import SOON, NodeNow
from reservation_core.ports.nodes.inventory import Cordon, Fence, GpuHealthView, GpuView, NodeRecord, NodeView
from reservation_core.ports.queues import QueueName


class Inventory(StatementRunner):
    """Nodes and GPUs as the cluster reported them."""

    def __init__(self, connection: AsyncConnection, queue: Queue) -> None:
        super().__init__(connection)
        self._queue = queue

    async def update(
        self, nodes: Sequence[NodeReport], foreign: Sequence[ForeignPod], now: datetime, kept: float | None = 0.0
    ) -> list[dict[str, Any]]:
        """Update the tables from a complete report of the cluster, and record every change.

        `kept` is the part of each node that is for jobs without GPUs; None: a tenth, and enough for one such job.

        Returns the changes: `{kind, node, index, before, after}`, the last two with the differing fields. Notifies the
        planner of changes that matter to it. Without changes only `last_seen_at` is written, at most once a minute.
        """
        await self._run("lock_inventory")
        differences = reconcile(await self._known_nodes(), await self._known_gpus(now), nodes, foreign, kept)
        await self._write(differences, now)
        await self._run("touch_nodes", names=[n.name for n in nodes], now=now)
        if differences.replan:
            await self._wake_planner()
        return [_described(change) for change in differences.changes]

    async def gpus(self, *, after: tuple[str, int] | None, limit: int) -> list[GpuView]:
        """GPUs after (node, index), in that order; GPUs of removed nodes only while a reservation holds them."""
        node, index = after or ("", -1)
        result = await self._run(
            "gpu_views", after_node=node, after_index=index, limit=limit, within_s=SOON.total_seconds()
        )
        return [
            GpuView(
                node=row.node,
                index=row.card_index,
                uuid=row.uuid,
                gpu_type=row.gpu_type,
                memory_bytes=row.memory_bytes,
                state=GpuState(row.state),
                holder_id=row.holder_id,
                holder_user=row.holder_user,
                holder_user_id=row.holder_user_id,
                free_at=row.free_at,
                taken_at=row.taken_at,
                health=_health(row),
            )
            for row in result
        ]

    async def nodes(self, *, after: str | None, limit: int) -> list[NodeView]:
        """Nodes after a name, in order; removed ones only while they are fenced or a reservation holds their GPUs."""
        found = await self._run("node_views", after=after or "", only=None, limit=limit, within_s=SOON.total_seconds())
        return [_node_view(row) for row in found]

    async def node(self, name: str) -> NodeView | None:
        """One node, even if it was removed."""
        return await self._first(_node_view, "node_views", after="", only=name, limit=1, within_s=SOON.total_seconds())

    async def lock_node(self, name: str) -> NodeRecord | None:
        """Lock a node until the transaction ends, and read it."""
        row = (await self._run("lock_node", name=name)).one_or_none()
        if row is None:
            return None
        return NodeRecord(row.name, row.ready, row.last_seen_at, row.fenced_by, row.cordoned_by, row.cordon_reason)

    async def fence(self, name: str, by: str, reason: str | None, now: datetime) -> None:
        """Mark the node as powered off, and wake the planner."""
        await self._run("fence_node", name=name, by=by, reason=reason, now=now)
        await self._wake_planner()

    async def unfence(self, name: str) -> None:
        """Remove the fence, and wake the planner."""
        await self._run("unfence_node", name=name)
        await self._wake_planner()

    async def cordon(self, name: str, cordon: Cordon) -> None:
        """Exclude the node from new placements, and wake the planner."""
        await self._run("cordon_node", name=name, at=cordon.at, by=cordon.by, reason=cordon.reason)
        await self._wake_planner()

    async def uncordon(self, name: str) -> None:
        """Remove the cordon, and wake the planner."""
        await self._run("uncordon_node", name=name)
        await self._wake_planner()

    async def without_power(self, names: Sequence[str]) -> dict[str, Fence]:
        """The nodes of `names` that are fenced and don't answer, so that their pods count as ended."""
        if not names:
            return {}
        rows = await self._run("nodes_without_power", names=list(names))
        return {row.name: Fence(row.name, row.fenced_by, row.fence_reason) for row in rows}

    async def cut_off(self) -> dict[str, Fence]:
        """Reservations that hold GPUs of a fenced node which does not answer, by id."""
        rows = await self._run("reservations_without_power")
        return {row.id: Fence(row.node, row.fenced_by, row.fence_reason) for row in rows}

    async def nodes_now(self, soon: timedelta, before: Mapping[str, NodeNow]) -> list[NodeNow]:
        """Every node by name with its GPUs, their holders, and their next holders that begin within `soon`.

        Unchanged nodes are the objects in `before`.
        """
        result = await self._run("nodes_now", within_s=soon.total_seconds())
        return [node_now_of(row, before) for row in result.all()]

    async def gpu_counts(self) -> list[tuple[str, GpuState, int]]:
        """The number of GPUs by type and state, for metrics."""
        result = await self._run("gpu_counts")
        return [(row.gpu_type, GpuState(row.state), row.cards) for row in result]

    async def types(self) -> list[str]:
        """Every type of GPU that a node has or has had."""
        return [row.gpu_type for row in await self._run("gpu_types_ever")]

    async def _wake_planner(self) -> None:
        await self._queue.send(QueueName.GPU_JOBS, [JobMessage(kind="inventory").model_dump()])

    async def _known_nodes(self) -> list[KnownNode]:
        result = await self._run("known_nodes")
        return [
            KnownNode(
                row.name,
                row.ready,
                row.schedulable,
                row.detail,
                row.labels,
                row.removed,
                row.zone,
                row.logical_name,
                tuple(row.taints),
                row.gpu_resource,
                row.gpu_links,
                row.cpu_milli,
                row.memory_bytes,
                row.spare_cpu_milli,
                row.spare_memory_bytes,
                row.is_asked,
            )
            for row in result
        ]

    async def _known_gpus(self, now: datetime) -> list[KnownGpu]:
        result = await self._run("known_gpus", now=now)
        return [
            KnownGpu(
                row.node,
                row.card_index,
                row.gpu_type,
                row.uuid,
                row.memory_bytes,
                GpuCondition(row.condition),
                row.in_use,
            )
            for row in result
        ]

    async def _write(self, differences: Reconciliation, now: datetime) -> None:
        """Write all differences in at most three statements."""
        if differences.nodes:
            await self._run(
                "write_nodes",
                names=[n.name for n in differences.nodes],
                ready=[n.ready for n in differences.nodes],
                schedulable=[n.schedulable for n in differences.nodes],
                details=[n.detail for n in differences.nodes],
                labels=[json.dumps(dict(n.labels)) for n in differences.nodes],
                zones=[n.zone for n in differences.nodes],
                logical_names=[n.logical_name for n in differences.nodes],
                taints=[json.dumps(n.taints) for n in differences.nodes],
                gpu_resources=[n.gpu_resource for n in differences.nodes],
                gpu_links=[n.gpu_links for n in differences.nodes],
                removed=[n.removed for n in differences.nodes],
                cpus=[n.cpu_milli for n in differences.nodes],
                memory=[n.memory_bytes for n in differences.nodes],
                spare_cpus=[n.spare_cpu_milli for n in differences.nodes],
                spare_memory=[n.spare_memory_bytes for n in differences.nodes],
                now=now,
            )
        if differences.gpus:
            await self._run(
                "write_gpus",
                nodes=[g.node for g in differences.gpus],
                indices=[g.index for g in differences.gpus],
                types=[g.gpu_type for g in differences.gpus],
                uuids=[g.uuid for g in differences.gpus],
                memory=[g.memory_bytes for g in differences.gpus],
                conditions=[g.condition.value for g in differences.gpus],
                now=now,
            )
        if differences.changes:
            await self._run(
                "record_inventory_events",
                subjects=[c.subject for c in differences.changes],
                kinds=[c.kind for c in differences.changes],
                befores=[c.word_before for c in differences.changes],
                afters=[c.word_after for c in differences.changes],
                datas=[json.dumps(_described(c)) for c in differences.changes],
                actor=SYSTEM,
                now=now,
            )


def _node_view(row: Row[Any]) -> NodeView:
    return NodeView(
        name=row.name,
        ready=row.ready,
        schedulable=row.schedulable,
        detail=row.detail,
        gpu_types=tuple(row.gpu_types),
        gpus=row.gpus,
        free=row.free,
        taken_soon=row.taken_soon,
        last_seen_at=row.last_seen_at,
        removed_at=row.removed_at,
        labels=row.labels,
        zone=row.zone,
        logical_name=row.logical_name,
        taints=tuple(row.taints),
        fenced_at=row.fenced_at,
        fenced_by=row.fenced_by,
        links=None if row.gpu_links is None else read_links(row.gpu_links),
        has=Share(row.cpu_milli, row.memory_bytes),
        has_free=Share(row.cpu_milli_free, row.memory_bytes_free),
        keeps=Share(row.spare_cpu_milli, row.spare_memory_bytes),
        keeps_free=Share(row.spare_cpu_milli_free, row.spare_memory_bytes_free),
        cordon=None if row.cordoned_at is None else Cordon(row.cordoned_at, row.cordoned_by, row.cordon_reason),
        quarantined=tuple(row.quarantined),
    )


def _health(row: Row[Any]) -> GpuHealthView | None:
    if row.quarantined_at is None and row.slow_since is None:
        return None
    return GpuHealthView(row.quarantined_at, row.quarantined_by, row.quarantine_reason, row.slow_since, row.slow_reason)


def _described(change: InventoryChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "node": change.node,
        "index": change.index,
        "before": change.before,
        "after": change.after,
    }
