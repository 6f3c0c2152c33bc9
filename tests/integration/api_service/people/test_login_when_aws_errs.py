"""Signing in by AWS while AWS is away, slow, odd or asked by a crowd: nobody gets in who is not vouched for."""

import asyncio
from typing import cast

import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.people.newcomers import served
from tests.integration.api_service.people.signed_requests import signed
from tests.people.sign_in_world import STS, SignInWorld


async def test_aws_that_is_away_is_no_refusal(runtime: Runtime, world: SignInWorld) -> None:
    async with served(runtime, world, timeout_s=2) as client:
        world.network.ports.pop(STS)
        answer = await client.post("/v1/login", json=signed(world))
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:gpu-dev:problem:proof_unavailable")
        assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize("fault", ["redirect", "huge", "no json", "500", "silent"])
async def test_odd_answers_of_aws_let_nobody_in(fault: str, runtime: Runtime, world: SignInWorld) -> None:
    from aiohttp import web

    never = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        match fault:
            case "redirect":
                return web.Response(status=302, headers={"Location": "https://issuer.example/keys"})
            case "huge":
                # All is well in it, but for its size.
                honest = await world.sts.answer(request)
                return web.Response(body=cast("web.Response", honest).body + b" " * 2_000_000)  # type: ignore[operator]
            case "no json":
                return web.Response(text="<GetCallerIdentityResponse/>")
            case "500":
                return web.Response(status=500)
            case _:
                await never.wait()
                return web.Response()

    world.sts.receiver.answer = answer
    async with served(runtime, world, timeout_s=1 if fault == "silent" else 30) as client:
        said = await client.post("/v1/login", json=signed(world))
    never.set()
    assert (said.status_code, said.json()["type"]) == (503, "urn:gpu-dev:problem:proof_unavailable"), said.text
    assert len(world.network.asked) == 1


async def test_few_are_asked_at_once_and_a_crowd_is_told_to_come_back(runtime: Runtime, world: SignInWorld) -> None:
    from aiohttp import web

    go_on = asyncio.Event()
    under_way = most = 0
    honest = world.sts.answer

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await go_on.wait()
        under_way -= 1
        return await honest(request)

    world.sts.receiver.answer = slow
    async with served(runtime, world, parallel=1) as client:
        proofs = [signed(world, key=f"AKIAEXAMPLEOFADA{number}") for number in range(12)]
        asked = [asyncio.create_task(client.post("/v1/login", json=proof)) for proof in proofs]
        turned_away = [task for task in asked if task is not asked[0]]
        while sum(task.done() for task in turned_away) < 3:
            await asyncio.wait([task for task in asked if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        go_on.set()
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
    assert statuses == [201] * 9 + [503] * 3
    assert most == 1
