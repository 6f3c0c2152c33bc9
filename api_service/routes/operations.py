"""Calls that need no credential: health, metrics, and the description of the API."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from api_service.documents import openapi, problems
from api_service.problems import ProblemError
from api_service.reference_page import POLICY, render
from api_service.services import Served, Services
from reservation_core.ports.transactions import DatabaseUnavailableError

router = APIRouter(tags=["operations"])

_PATIENCE_S = 2.0
_NOT_READY: dict[int | str, dict[str, Any]] = {503: problems(503)[503]}
_ELSEWHERE: dict[int | str, dict[str, Any]] = {404: problems(404)[404]}


@router.get("/healthz", summary="Is the process alive?", response_class=PlainTextResponse)
async def healthz() -> Response:
    """200 as long as the process answers at all."""
    return PlainTextResponse("ok\n")


@router.get("/readyz", summary="Can it serve?", response_class=PlainTextResponse, responses=_NOT_READY)
async def readyz(services: Served) -> Response:
    """200 when the database answers; 503 when it does not, or the server is stopping.

    Failing loops are named, with their error and its start; they alone don't make the server unready.
    """
    failing = [str(loop) for loop in services.runtime.loops.failing()]
    if services.wakeups.stopping.is_set():
        raise _not_ready("stopping", "The server is stopping.")
    try:
        async with asyncio.timeout(_PATIENCE_S), services.runtime.uow() as uow:
            await uow.identities.users(after=None, limit=1)
    except (DatabaseUnavailableError, TimeoutError) as error:
        detail = "The database does not answer. Look at its log and at GPU_DEV_DATABASE_URL."
        raise _not_ready("database_unavailable", " ".join([detail, *(f"{loop}." for loop in failing)])) from error
    return PlainTextResponse("\n".join(["ready", *failing]) + "\n")


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse, responses=_ELSEWHERE)
async def metrics(services: Served) -> Response:
    """Queues, jobs, GPUs and requests. 404 where the server answers this at a port of its own."""
    if services.settings.metrics_listen is not None:
        raise ProblemError(404, "not_found", "Metrics are served at another port. Ask an administrator for it.")
    return await exposition(services)


async def exposition(services: Services) -> Response:
    """The metrics as a response, for whichever port."""
    return Response(await services.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


@router.get("/openapi.json", include_in_schema=False)
async def openapi_json(request: Request) -> Response:
    return JSONResponse(openapi(request.app))


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The OpenAPI document as a page."""
    return HTMLResponse(render(openapi(request.app)), headers={"Content-Security-Policy": POLICY})


def _not_ready(code: str, detail: str) -> ProblemError:
    return ProblemError(503, code, detail, headers={"Retry-After": "1"})
