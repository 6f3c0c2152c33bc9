"""A gang's log, read from several pods at once."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from api_service.job_log import _merged


class BrokenPod:
    """A pod whose log fails in a way that nobody foresaw."""

    async def read(self, *, follow: bool) -> AsyncGenerator[bytes]:
        yield b"one line\n"
        raise ValueError("nobody foresaw this")


class SilentPod:
    """A pod that prints, and then says nothing more."""

    async def read(self, *, follow: bool) -> AsyncGenerator[bytes]:
        yield b"its line\n"


async def test_what_breaks_one_pods_log_reaches_whoever_reads() -> None:
    pods: Any = [BrokenPod(), SilentPod()]
    with pytest.raises(ValueError, match="nobody foresaw this"):
        async for _ in _merged(pods):
            pass
