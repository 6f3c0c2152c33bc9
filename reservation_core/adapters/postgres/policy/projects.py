"""Projects and their members in PostgreSQL."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import NameTakenError
from reservation_core.ports.policy.policies import Project


class Projects(StatementRunner):
    async def create(self, name: str, title: str | None, now: datetime) -> Project:
        """Store a new project. Raises NameTakenError; the transaction stays usable."""
        row = (await self._run("create_project", name=name, title=title, now=now)).one_or_none()
        if row is None:
            raise NameTakenError(f"There is a project {name} already; choose another name.")
        return _project(row)

    async def get(self, name: str) -> Project | None:
        return await self._first(_project, "project_by_name", name=name)

    async def page(self, user_id: int | None, *, after: str | None, limit: int) -> list[Project]:
        """Projects after a name, in order, of a user (None: all)."""
        return [
            _project(row)
            for row in await self._run("projects_by_name", user_id=user_id, after=after or "", limit=limit)
        ]

    async def delete(self, name: str) -> bool:
        """Delete a project, but not its usage; whether it existed."""
        return await self._affects("delete_project", name=name)

    async def add_member(self, name: str, user_id: int) -> bool:
        """Add a member; false when the user is a member already."""
        return await self._affects("add_project_member", name=name, user_id=user_id)

    async def remove_member(self, name: str, user_id: int) -> bool:
        """Remove a member; false when the user is no member."""
        return await self._affects("remove_project_member", name=name, user_id=user_id)

    async def fellows(self, user_id: int) -> dict[int, str]:
        """The names, by id, of users who share a project with a user."""
        return {row.id: row.name for row in await self._run("fellows_of_user", user_id=user_id)}

    async def of_user(self, user_id: int) -> list[str]:
        """The names of a user's projects, in order."""
        return list((await self._run("projects_of_user", user_id=user_id)).scalars())

    async def _affects(self, statement_name: str, **values: Any) -> bool:
        return (await self._run(statement_name, **values)).one_or_none() is not None


def _project(row: Row[Any]) -> Project:
    return Project(row.name, row.title, row.created_at, tuple(row.members))
