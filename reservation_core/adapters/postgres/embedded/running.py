"""The embedded server of a home folder, running."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reservation_core.adapters.postgres.embedded.layout import make_home
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres


@contextmanager
def embedded_database(home: Path) -> Iterator[str]:
    """The URL (for SQLAlchemy with asyncpg) of the embedded database, which is started and stopped unless it runs.

    Raises EmbeddedPostgresError.
    """
    server = EmbeddedPostgres(make_home(home))
    if server.pid is not None:
        yield server.url
        return
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
