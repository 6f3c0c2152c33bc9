"""The database that an operator's command works on: that of the settings, or the embedded one, started if need be."""

from collections.abc import Iterator
from contextlib import contextmanager

from reservation_core.adapters.postgres.embedded.running import embedded_database
from reservation_core.runtime.settings.components import CommonSettings


@contextmanager
def operators_database(settings: CommonSettings, *, new: bool = False) -> Iterator[str]:
    """The URL (for SQLAlchemy with asyncpg) of the settings' database, during the block.

    An embedded server is started and stopped, unless it runs; with `new` it is made where there is none. Raises
    EmbeddedPostgresError and SettingsError.
    """
    if settings.database_url is not None:
        from reservation_core.runtime.database_urls import database_url_of  # noqa: PLC0415 - loads SQLAlchemy

        yield database_url_of(settings)
        return
    with embedded_database(settings.home, new=new) as url:
        yield url
