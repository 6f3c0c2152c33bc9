"""Profiles at the paths that tools of Go programs use, as plain text."""

import asyncio
import threading

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpu_admission.profiles import describe_memory, describe_tasks, sample_stacks

_EVERY_S = 0.005
_LONGEST_S = 120.0
_USUAL_S = 30.0
_INDEX = """/debug/pprof/profile?seconds=30
    stacks at work, sampled every 5 ms: one a line with how often, as flame graphs are made of
/debug/pprof/goroutine
    every task and thread, and where it is
/debug/pprof/heap
    memory, and of which types there are most objects
"""


def create_debug_app(stop: asyncio.Event) -> Starlette:
    """The ASGI application. One profile is made at a time; it ends early once `stop` is set."""
    making = asyncio.Lock()

    async def index(_request: Request) -> Response:
        return PlainTextResponse(_INDEX)

    async def profile(request: Request) -> Response:
        seconds = _seconds(request.query_params.get("seconds"))
        if seconds is None:
            return PlainTextResponse(f"seconds must be a number above 0, and {_LONGEST_S:g} at most\n", 400)
        if making.locked():
            return PlainTextResponse("a profile is being made; ask again when it is done\n", 409)
        async with making:
            ended = threading.Event()
            ending = asyncio.create_task(_ended(stop, ended))
            try:
                found = await asyncio.to_thread(sample_stacks, seconds, _EVERY_S, ended)
            finally:
                ended.set()
                ending.cancel()
        return PlainTextResponse("".join(f"{stack} {count}\n" for stack, count in found.most_common()))

    async def tasks(_request: Request) -> Response:
        return PlainTextResponse(describe_tasks())

    async def heap(_request: Request) -> Response:
        return PlainTextResponse(await asyncio.to_thread(describe_memory))

    return Starlette(
        routes=[
            Route("/debug/pprof/", index),
            Route("/debug/pprof/profile", profile),
            Route("/debug/pprof/goroutine", tasks),
            Route("/debug/pprof/heap", heap),
        ]
    )


async def _ended(stop: asyncio.Event, ended: threading.Event) -> None:
    await stop.wait()
    ended.set()


def _seconds(text: str | None) -> float | None:
    try:
        seconds = _USUAL_S if text is None else float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds <= _LONGEST_S else None
