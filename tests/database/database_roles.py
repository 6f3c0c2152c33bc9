"""Roles of one database: its owner, and the one that the application works as."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from sqlalchemy import make_url


@contextmanager
def owner_and_application(database_url: str) -> Iterator[tuple[str, str]]:
    """An empty database's URL for its owner, who is no superuser, and for the role that the application works as."""
    url = make_url(database_url)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    owner, application = (f"{word}_{uuid4().hex[:12]}" for word in ("owner", "application"))
    with psycopg.connect(plain, autocommit=True) as connection:
        for role in (owner, application):
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'".encode())
        connection.execute(f'ALTER DATABASE "{url.database}" OWNER TO {owner}'.encode())
        try:
            yield (
                url.set(username=owner, password="secret").render_as_string(hide_password=False),
                url.set(username=application, password="secret").render_as_string(hide_password=False),
            )
        finally:
            for role in (application, owner):
                connection.execute(f"DROP OWNED BY {role} CASCADE".encode())
            connection.execute(f'ALTER DATABASE "{url.database}" OWNER TO CURRENT_USER'.encode())
            for role in (application, owner):
                connection.execute(f"DROP ROLE {role}".encode())
