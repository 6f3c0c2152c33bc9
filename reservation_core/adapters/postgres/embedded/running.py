"""The embedded server of a home folder, running."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.layout import has_database, make_home
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres


@contextmanager
def embedded_database(home: Path, *, new: bool = False) -> Iterator[str]:
    """The URL (for SQLAlchemy with asyncpg) of the embedded database, which is started and stopped unless it runs.

    `new`: where there is none it is made. Raises EmbeddedPostgresError.
    """
    if not new and not has_database(home):
        raise EmbeddedPostgresError(
            f"There is no database in {home.absolute()}. Run this in the server's folder, or name the server's data "
            "folder in GPU_DEV_HOME."
        )
    server = EmbeddedPostgres(make_home(home))
    if server.pid is not None:
        yield server.url
        return
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
