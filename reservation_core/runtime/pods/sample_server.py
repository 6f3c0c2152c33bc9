"""The node agent's samples over HTTP, for the leading processor, which asks every few seconds."""

import asyncio
from collections.abc import Sequence

import msgspec
from fastapi import FastAPI
from fastapi.responses import Response

from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.ports.clock import Clock
from reservation_core.ports.gpu_use import GpuSampler

_LASTS_S = 0.9
"""A look is answered again within this time: the driver is not asked more often, whoever asks."""


def create_app(sampler: GpuSampler | None, clock: Clock) -> FastAPI:
    """The ASGI application. `GET /samples` answers a JSON array of objects as `GpuSample`, empty without a driver."""
    app = FastAPI(title="GPU Dev Server: node agent", docs_url=None, redoc_url=None, openapi_url=None)
    looking = asyncio.Lock()
    last: Sequence[GpuSample] = ()
    lasts_until = 0.0

    @app.get("/samples")
    async def samples() -> Response:
        nonlocal last, lasts_until
        async with looking:
            time = asyncio.get_running_loop().time
            if sampler is not None and time() >= lasts_until:
                last = await sampler.look(clock.now())
                lasts_until = time() + _LASTS_S
        return Response(msgspec.json.encode(last), media_type="application/json")

    return app
