"""The OpenAPI document, and what a generator of requests makes of it: no answer outside of it, and never a 5xx."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from api_service.app import create_app
from api_service.server import serve
from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import open_runtime
from tests.examples import PROFILE, Profile
from tests.waiting import PATIENCE_S

# Of each operation, right and wrong.
EXAMPLES = {Profile.REPEATABLE: 4, Profile.EXPLORING: 20, Profile.QUICK: 2}[PROFILE]
SHARES = 3  # of the operations, so that several workers may try them
# A schema can't say everything that a valid request must fulfil (env names that are ours, NUL, the longest duration).
EXCLUDED = {"positive_data_acceptance"}
CREDENTIALS: dict[str, list[dict[str, list[str]]]] = {"/v1/bookings.ics": [{"feed": []}], "/v1/login": []}


async def _serve(database_url: str, home: Path, ready: "Future[tuple[str, str, asyncio.Event]]") -> None:
    chosen = ApiSettings(home=home, local_gpus="h100:2")
    stop = asyncio.Event()
    async with open_runtime(chosen, database_url) as runtime:
        secret = runtime.ids.new_secret()
        async with runtime.uow() as uow:
            user = await uow.identities.create_user("root", Role.ADMIN, runtime.clock.now())
            await uow.identities.create_token(
                runtime.ids.new_id("tok"), user.id, None, runtime.ids.digest(secret), None, runtime.clock.now()
            )
        app = create_app(runtime, chosen)
        await serve(app, "127.0.0.1:0", stop=stop, ready=lambda url: ready.set_result((url, secret, stop)))


@pytest.fixture
def served(database_url: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The API in a thread with an event loop of its own: its base URL and an administrator's token."""
    ready: Future[tuple[str, str, asyncio.Event]] = Future()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(_serve(database_url, tmp_path / "home", ready)))
    thread.start()
    url, secret, stop = ready.result(PATIENCE_S)
    try:
        yield url, secret
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        loop.close()


@pytest.mark.hypothesis
@pytest.mark.parametrize("share", range(SHARES))
def test_generated_requests_get_documented_answers(served: tuple[str, str], share: int) -> None:
    url, secret = served
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {secret}"}
    load_all_checks()
    excluded = [CHECKS.get_one(name) for name in EXCLUDED]
    tried = 0
    for found in islice(schema.get_all_operations(), share, None, SHARES):
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and not _takes_anything(operation):
                continue
            _hold(operation.as_strategy(generation_mode=mode), headers, excluded)
            tried += 1
    assert tried >= 35 / SHARES


def _takes_anything(operation: Any) -> bool:
    return bool(list(operation.iter_parameters())) or bool(operation.body)


def _hold(cases: Any, headers: dict[str, str], excluded: list[Any]) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def hold(case: schemathesis.Case) -> None:
        response = case.call(headers=headers, timeout=PATIENCE_S)
        # A body that is too long is refused before its other faults are looked at.
        unread = [CHECKS.get_one("negative_data_rejection")] if response.status_code == 413 else []
        case.validate_response(response, headers=headers, excluded_checks=[*excluded, *unread])

    hold()


async def test_every_operation_documents_itself(app: FastAPI) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        document = (await client.get("/openapi.json")).json()
        page = await client.get("/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for outside in ("<script", "src=", "https://", "http://"):
        assert outside not in page.text
    names = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names.add(operation["operationId"])
            assert path in page.text
            assert operation["summary"]
            if path.startswith("/v1/"):
                assert operation["security"] == CREDENTIALS.get(path, [{"bearer": []}])
                assert {"401", "422", "500", "503"} <= set(operation["responses"])
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        assert list(response["content"]) == ["application/problem+json"], (path, status)
            if method == "post" and path != "/v1/login":  # whoever signs in has no keys yet
                assert "Idempotency-Key" in [parameter["name"] for parameter in operation["parameters"]]
    assert len(names) == sum(len(operations) for operations in document["paths"].values())
    assert document["components"]["schemas"]["JobSubmit"]["examples"]
