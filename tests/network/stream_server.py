"""A TCP server of streams that leaves nothing open behind it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stream_server(
    serve: Serve, port: int = 0, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Serve each connection while the block runs; gives the port. Over TLS with a context.

    asyncio begins a task for a connection, and one that is cancelled before its first step closes nothing: so
    connections are ended here, also those that were let in just before the end.
    """
    open_now: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(one(reader, writer))
        open_now[task] = writer
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        open_now.pop(task).close()

    server = await asyncio.start_server(begin, host, port, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)
        writers = list(open_now.values())
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        for writer in writers:  # a farewell would be waited for
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server that nobody is just being let in by: asyncio forgets to close such a connection (CPython 3.11)."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    await some_rounds()  # whoever was let in just now is known then
    server.close()


async def some_rounds() -> None:
    """Of the event loop."""
    for _ in range(10):
        await asyncio.sleep(0)
