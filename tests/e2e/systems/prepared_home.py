"""Homes whose database is there and migrated: what a system makes at its first start takes it seconds."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reservation_core.adapters.postgres.connection.migrating import upgrade
from reservation_core.adapters.postgres.embedded import layout
from reservation_core.adapters.postgres.embedded.account import server_account
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres


class PreparedHome:
    """A home with a migrated database whose server does not run."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def copy_to(self, home: Path) -> None:
        """Make another home like it."""
        account = server_account()
        data = layout.existing(self._home, account)
        assert data is not None
        copied = layout.prepare(layout.make_home(home), account)
        subprocess.run(["cp", "--archive", str(data.data), str(copied.data)], check=True)


@contextmanager
def prepared_home(folder: Path) -> Iterator[PreparedHome]:
    """One in a new folder below this one."""
    home = folder / "prepared home"
    server = EmbeddedPostgres(home, settings={"fsync": "off"})
    try:
        url = server.start()
        asyncio.run(upgrade(url))
        server.stop()
        yield PreparedHome(home)
    finally:
        server.destroy()
        shutil.rmtree(home)
