"""The node agent's samples over HTTP, for the leading processor, which asks every few seconds."""

import asyncio
import secrets
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query
from fastapi.responses import Response

from reservation_core.adapters.kubernetes.nodes.agent_samples import LOOK_HEADER
from reservation_core.domain.gpu_use.untaken_xids import UntakenXids
from reservation_core.ports.clock import Clock
from reservation_core.ports.gpu_use import GpuSampler

_LASTS_S = 0.9
"""A look is answered again within this time: the driver is not asked more often, whoever asks."""


def create_app(sampler: GpuSampler | None, clock: Clock) -> FastAPI:
    """The ASGI application. `GET /samples` answers a JSON array of objects as `GpuSample`, empty without a driver.

    With `?after=LOOK` it has all Xid errors since that look, whichever answers were lost.
    """
    app = FastAPI(title="GPU Dev Server: node agent", docs_url=None, redoc_url=None, openapi_url=None)
    looking = asyncio.Lock()
    last = UntakenXids(secrets.randbits(48))
    lasts_until = 0.0

    @app.get("/samples")
    async def samples(after: Annotated[int | None, Query()] = None) -> Response:
        nonlocal lasts_until
        async with looking:
            time = asyncio.get_running_loop().time
            if sampler is not None and time() >= lasts_until:
                last.add(await sampler.look(clock.now()), after)
                lasts_until = time() + _LASTS_S
            found = last.after(after)
        headers = {LOOK_HEADER: str(last.look)}
        return Response(msgspec.json.encode(found), media_type="application/json", headers=headers)

    return app
