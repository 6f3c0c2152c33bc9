"""A line of the access log: whatever a request says, it is one line of JSON that says the same."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.access.access_log import AccessLog
from reservation_core.runtime.settings.components import ApiSettings
from tests.clocks import SettableClock

TEXTS = st.text(max_size=50)


@given(path=TEXTS, user=st.none() | TEXTS, seconds=st.floats(0, 100_000))
def test_every_line_is_json_that_says_what_was_asked(path: str, user: str | None, seconds: float) -> None:
    scope = {"request_id": "1-1", "client": None, "method": "GET", "path": path, "named_user": (user, None)}
    with TemporaryDirectory() as home:
        log = AccessLog(ApiSettings(home=Path(home), access_log="access.log"), SettableClock())
        log.note(scope, "unmatched", 404, seconds)
        asyncio.run(log.write())
        log.close()
        written = (Path(home) / "access.log").read_bytes()
    assert written.isascii()
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1
    assert all(byte >= 0x20 for byte in written[:-1])
    found = json.loads(written)
    assert (found["path"], found["user"], found["token"], found["status"]) == (path, user, None, 404)
    assert abs(found["ms"] - seconds * 1000) <= 0.06


def test_a_write_that_is_cancelled_before_its_thread_begins_is_written() -> None:
    """As when the server ends while all threads are taken."""

    async def scenario(log: AccessLog) -> None:
        threads, free = ThreadPoolExecutor(1), threading.Event()
        asyncio.get_running_loop().set_default_executor(threads)
        taken = threads.submit(free.wait)
        log.note({"request_id": "1-1", "client": None, "method": "GET", "path": "/first"}, "unmatched", 404, 0.1)
        writing = asyncio.create_task(log.write())
        await asyncio.sleep(0)
        writing.cancel()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        log.note({"request_id": "1-2", "client": None, "method": "GET", "path": "/second"}, "unmatched", 404, 0.1)
        await log.write()
        assert taken.result()

    with TemporaryDirectory() as home:
        log = AccessLog(ApiSettings(home=Path(home), access_log="access.log"), SettableClock())
        asyncio.run(scenario(log))
        log.close()
        written = [json.loads(line)["path"] for line in (Path(home) / "access.log").read_text().splitlines()]
    assert written == ["/first", "/second"]
