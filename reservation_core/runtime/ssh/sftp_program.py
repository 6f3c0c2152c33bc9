"""An SFTP server on standard input and output, for machines without OpenSSH's. Runs inside a local pod, by itself."""

import asyncio
import os
import select
import sys
from types import SimpleNamespace
from typing import Any, cast

from asyncssh.logging import logger
from asyncssh.sftp import MIN_SFTP_VERSION, SFTPServer, run_sftp_server


class _Input(asyncio.StreamReader):
    """Standard input as the library reads it."""

    logger = logger

    def get_extra_info(self, _name: str, _default: object = None) -> str:
        """Which client it is: nearly all have the arguments of a symbolic link in OpenSSH's order."""
        return "OpenSSH"


class _Output:
    """Standard output as the library writes to it."""

    def __init__(self) -> None:
        self.channel = self
        self._closed = False

    def is_closing(self) -> bool:
        return self._closed

    def write(self, data: bytes) -> None:
        """Write all of it; a client that does not read makes the program wait."""
        left = memoryview(data)
        while left and not self._closed:
            try:
                left = left[os.write(1, left) :]
            except BlockingIOError:  # both ends may be one socket, and reading must not block
                select.select([], [1], [])
            except OSError:
                self._closed = True

    def close(self) -> None:
        self._closed = True


async def serve() -> None:
    """Serve until the input ends."""
    reader = _Input()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    channel = cast("Any", SimpleNamespace(logger=logger))
    server = SFTPServer(channel)
    await run_sftp_server(server, cast("Any", reader), cast("Any", _Output()), MIN_SFTP_VERSION)


if __name__ == "__main__":
    asyncio.run(serve())
