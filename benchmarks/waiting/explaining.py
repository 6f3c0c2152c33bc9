"""What a named statement reads and how long it takes, by the plan that the program itself uses: the generic one.

`EXPLAIN` of a statement with parameters plans it for just these values; the program's sessions never do that (see
`plan_cache_mode` in adapters/postgres/connection/engine.py). So the statement is prepared, and what is explained is its
execution.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


@dataclass(frozen=True, slots=True)
class Explained:
    """One execution: `buffers` are pages of tables and indexes that it touched, `ms` how long it ran."""

    plan: dict[str, Any]
    buffers: int
    ms: float

    @property
    def nodes(self) -> Iterator[dict[str, Any]]:
        """Every node of the plan."""
        return _nodes(self.plan)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def explain(connection: AsyncConnection, name: str, values: Mapping[str, Any]) -> Explained:
    """Execute a statement of the program's and tell what it did; what it wrote is taken back."""
    compiled = statement(name).compile(dialect=dialect())  # type: ignore[no-untyped-call]
    places = compiled.positiontup or []
    literals = ", ".join(_literal(values[place]) for place in places)
    arguments = f"({literals})" if places else ""
    inner = await connection.begin_nested()
    await _script(connection, f"SET LOCAL plan_cache_mode = force_generic_plan; PREPARE explained AS {compiled}")
    [[found]] = await _fetch(connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) EXECUTE explained{arguments}")
    await inner.rollback()
    await _script(connection, "DEALLOCATE explained")
    [document] = json.loads(found) if isinstance(found, str) else found
    plan = document["Plan"]
    return Explained(plan, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], document["Execution Time"])


async def _script(connection: AsyncConnection, sql: str) -> None:
    raw = await connection.get_raw_connection()
    await raw.driver_connection.execute(sql)  # type: ignore[union-attr]


async def _fetch(connection: AsyncConnection, sql: str) -> Any:
    raw = await connection.get_raw_connection()
    return await raw.driver_connection.fetch(sql)  # type: ignore[union-attr]


def _literal(value: Any) -> str:
    """A value as a literal without a type: the parameter has one."""
    if value is None:
        return "NULL"
    return "'" + _text(value).replace("'", "''") + "'"


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
        case bytes():
            return "\\x" + value.hex()
        case list():
            return "{" + ",".join("NULL" if part is None else json.dumps(_text(part)) for part in value) + "}"
        case _:
            return str(value)
