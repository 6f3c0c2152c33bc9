"""Projects and their members in PostgreSQL."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.errors import NameTakenError
from reservation_core.ports.policy.policies import Project


class Projects:
    """Projects and their members."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(self, name: str, title: str | None, now: datetime) -> Project:
        """Store a new project. Raises NameTakenError; the transaction stays usable."""
        found = await self._connection.execute(statement("create_project"), {"name": name, "title": title, "now": now})
        row = found.one_or_none()
        if row is None:
            raise NameTakenError(f"There is a project {name} already; choose another name.")
        return _project(row)

    async def get(self, name: str) -> Project | None:
        """One project, by name."""
        row = (await self._connection.execute(statement("project_by_name"), {"name": name})).one_or_none()
        return None if row is None else _project(row)

    async def page(self, user_id: int | None, *, after: str | None, limit: int) -> list[Project]:
        """Projects after a name, in order, those that a user is in (None: all)."""
        found = await self._connection.execute(
            statement("projects_by_name"), {"user_id": user_id, "after": after or "", "limit": limit}
        )
        return [_project(row) for row in found]

    async def delete(self, name: str) -> bool:
        """What was held for it stays on record. False when there is none."""
        return await self._hit("delete_project", name=name)

    async def add_member(self, name: str, user_id: int) -> bool:
        """False when they are a member already."""
        return await self._hit("add_project_member", name=name, user_id=user_id)

    async def remove_member(self, name: str, user_id: int) -> bool:
        """False when they were none."""
        return await self._hit("remove_project_member", name=name, user_id=user_id)

    async def fellows(self, user_id: int) -> dict[int, str]:
        """Users in a project with a user: names by id."""
        found = await self._connection.execute(statement("fellows_of_user"), {"user_id": user_id})
        return {row.id: row.name for row in found}

    async def of_user(self, user_id: int) -> list[str]:
        """The names of the projects that a user is in, in order."""
        found = await self._connection.execute(statement("projects_of_user"), {"user_id": user_id})
        return list(found.scalars())

    async def _hit(self, which: str, **values: Any) -> bool:
        return (await self._connection.execute(statement(which), values)).one_or_none() is not None


def _project(row: Row[Any]) -> Project:
    return Project(row.name, row.title, row.created_at, tuple(row.members))
