"""Durable `POST /v1/jobs` with a verified token, against a POST of the same framework that does nothing."""

import json
import tempfile
from pathlib import Path

import uvloop

from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import database
from benchmarks.measuring.do_nothing import do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.load import closed_loop, post

CONNECTIONS = 32
ROUNDS = 5
SECONDS = 4.0
BODY = json.dumps(
    {"name": "train", "gpus": 1, "gpu_type": "h100", "duration": 3600, "workload": {"command": ["python", "train.py"]}}
).encode()


def measure() -> list[Figure]:
    """Both servers are up throughout; rounds alternate."""
    durable: list[float] = []
    nothing: list[float] = []
    with (
        tempfile.TemporaryDirectory() as home,
        database() as url,
        api_process(url, Path(home)) as (address, token),
        do_nothing() as bare,
    ):

        def rate(where: str) -> float:
            request = post(where, "/v1/jobs", BODY, token)
            return uvloop.run(closed_loop(where, request, connections=CONNECTIONS, seconds=SECONDS))

        rate(bare.address)
        rate(address)
        for _ in range(ROUNDS):
            nothing.append(rate(bare.address))
            durable.append(rate(address))
    ratios = [ours / theirs for ours, theirs in zip(durable, nothing, strict=True)]
    detail = f"durable {sorted(durable)[ROUNDS // 2]:.0f}/s, do-nothing {sorted(nothing)[ROUNDS // 2]:.0f}/s"
    return [Figure("durable submit ÷ do-nothing POST, 32 connections", "x", ratios, 0.5, at_least=True, detail=detail)]
