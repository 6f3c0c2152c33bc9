"""The check service, as a process: what it prints is what the guide shows."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.waiting import PATIENCE_S


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    bare = {name: value for name, value in os.environ.items() if name not in ("NODE_NAME", "CUDA_VISIBLE_DEVICES")}
    command = [sys.executable, "-m", "gpu_scheduler_check", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**bare, **environment}) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_it_says_where_it_is_and_what_it_sees_again_and_again() -> None:
    with running("--interval", "0.01", NODE_NAME="node3", CUDA_VISIBLE_DEVICES="0,1,2") as process:
        once = ["Node Name: node3\n", "CUDA_VISIBLE_DEVICES: 0,1,2\n", "---\n"]
        assert lines(process, 9) == once * 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_it_is_told_to(number: signal.Signals) -> None:
    with running("--interval", "3600") as process:
        lines(process, 3)
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE_S) == 0


def test_a_variable_that_is_not_there_is_no_empty_one() -> None:
    with running(CUDA_VISIBLE_DEVICES="") as process:
        assert lines(process, 2) == ["Node Name: not set\n", "CUDA_VISIBLE_DEVICES: \n"]
    with running() as process:
        assert lines(process, 2)[1] == "CUDA_VISIBLE_DEVICES: not set\n"


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "x", "86401"])
def test_an_interval_that_is_none_is_refused(interval: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_scheduler_check", "--interval", interval],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "is not a number of seconds" in done.stderr
