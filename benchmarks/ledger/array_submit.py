"""`POST /v1/jobs` of an array of 10,000 elements, against one of a single job: one request after the other."""

import json
import tempfile
from pathlib import Path

import uvloop

from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import database
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.load import closed_loop, post

ELEMENTS = 10_000
ROUNDS = 5
SECONDS = 3.0
JOB = {
    "name": "sweep",
    "gpus": 1,
    "gpu_type": "h100",
    "duration": 3600,
    "workload": {"command": ["python", "train.py"]},
}


def measure() -> list[Figure]:
    """Rounds of both alternate on one server."""
    with tempfile.TemporaryDirectory() as home, database() as url, api_process(url, Path(home)) as (address, token):

        def milliseconds(body: dict[str, object]) -> float:
            request = post(address, "/v1/jobs", json.dumps(body).encode(), token)
            return 1000 / uvloop.run(closed_loop(address, request, connections=1, seconds=SECONDS))

        array = {**JOB, "array": {"size": ELEMENTS, "parallel": 8}}
        milliseconds(JOB)
        milliseconds(array)
        single, whole = [], []
        for _ in range(ROUNDS):
            single.append(milliseconds(JOB))
            whole.append(milliseconds(array))
    ratios = [many / one for many, one in zip(whole, single, strict=True)]
    of_elements = [1000 * (many - one) / ELEMENTS for many, one in zip(whole, single, strict=True)]
    detail = f"array {sorted(whole)[ROUNDS // 2]:.2f} ms, job {sorted(single)[ROUNDS // 2]:.2f} ms"
    return [
        Figure("submit of 10,000 elements ÷ of one job", "x", ratios, 2.0, at_least=False, detail=detail),
        Figure("submit of 10,000 elements − of one job, an element", " µs", of_elements, 1.0, at_least=False),
    ]
