"""Simulations over REST in a process of their own: one at a time, not for long, and beside other requests."""

import asyncio

import httpx
from fastapi import FastAPI

from tests.integration.api_service.policy.test_simulations import CROWDED, EIGHT, simulated
from tests.waiting import eventually


async def test_a_second_simulation_is_asked_to_come_again(alice: httpx.AsyncClient, app: FastAPI) -> None:
    with app.state.services.simulator.place():
        answer = await alice.post("/v1/simulations", json={"trace": CROWDED, "cluster": EIGHT})
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:gpu-dev:problem:simulator_busy"
    assert int(answer.headers["retry-after"]) > 0
    await simulated(alice, trace=CROWDED, cluster=EIGHT)


async def test_a_simulation_that_takes_too_long_ends(alice: httpx.AsyncClient, app: FastAPI) -> None:
    app.state.services.simulator.limit_s = 0.01
    answer = await alice.post("/v1/simulations", json={"trace": CROWDED, "cluster": EIGHT})
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:gpu-dev:problem:simulation_too_large"


async def test_other_requests_are_answered_while_a_simulation_runs(alice: httpx.AsyncClient) -> None:
    async def answered_meanwhile() -> bool:
        simulation = asyncio.create_task(simulated(alice, trace=CROWDED, cluster=EIGHT))
        answer = await alice.get("/v1/jobs")
        assert answer.status_code == 200
        is_over = simulation.done()
        await simulation
        return not is_over

    await eventually(answered_meanwhile)
