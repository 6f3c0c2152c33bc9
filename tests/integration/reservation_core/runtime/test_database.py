"""The program that migrates databases: patience, and the first administrator."""

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.runtime.database import main
from reservation_core.runtime.wiring import Runtime

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "gpudev_" + "a" * 43
Done = subprocess.CompletedProcess[str]


def environment(url: str) -> dict[str, str]:
    return {"GPU_DEV_DATABASE_URL": url, "PATH": "/usr/bin:/bin"}


def run(url: str, *arguments: str) -> Done:
    """Its `main` in this process, which is quicker than a new one; in a thread, as this one may have an event loop."""
    with (
        patch.dict(os.environ, environment(url), clear=True),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        ThreadPoolExecutor(1) as thread,
    ):
        code = thread.submit(main, list(arguments)).result()
    return Done(arguments, code, out.getvalue(), err.getvalue())


def run_whole(url: str, *arguments: str) -> Done:
    command = [sys.executable, "-m", "reservation_core.runtime.database", *arguments]
    return subprocess.run(command, env=environment(url), check=False, capture_output=True, text=True, timeout=300)


def test_a_database_that_is_not_there_is_waited_for_and_told_of(tmp_path: Path) -> None:
    nowhere = f"postgresql://nobody:hidden@/none?host={tmp_path}"
    for arguments in (["migrate"], ["status"], ["wait", "--patience", "0.1"]):
        done = run(nowhere, *arguments)
        assert done.returncode == 1
        assert "can't be reached" in done.stderr
        assert "hidden" not in done.stderr


def test_an_empty_database_is_migrated_once_and_then_nobody_waits(empty_database_url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    assert run_whole(empty_database_url, "wait").returncode == 3
    first = run_whole(empty_database_url, "migrate", "--patience", "60", "--admin-token-file", str(token))
    assert (first.returncode, first.stderr) == (0, "")
    assert "The user admin was made" in first.stdout
    assert TOKEN not in first.stdout
    second = run(empty_database_url, "migrate", "--admin-token-file", str(token))
    assert second.returncode == 0
    assert "admin" not in second.stdout
    assert run(empty_database_url, "wait").returncode == 0


async def test_the_first_administrators_token_is_valid_and_is_not_given_back_once_revoked(
    runtime: Runtime, database_url: str, tmp_path: Path
) -> None:
    token, ids = tmp_path / "token", RandomIds()
    token.write_text(TOKEN)
    assert run(database_url, "migrate", "--admin-token-file", str(token)).returncode == 0
    async with runtime.uow() as uow:
        principal = await uow.identities.principal(ids.digest(TOKEN), NOW)
        assert principal is not None
        assert principal.is_admin
        (kept,) = await uow.identities.tokens(None, after=None, limit=10)
        await uow.identities.revoke_token(kept.id, None, NOW)
    assert run(database_url, "migrate", "--admin-token-file", str(token)).returncode == 0
    async with runtime.uow() as uow:
        assert await uow.identities.principal(ids.digest(TOKEN), NOW) is None


def test_what_is_no_token_is_refused_before_anything_is_changed_and_never_shown(
    empty_database_url: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("too-short")
    done = run(empty_database_url, "migrate", "--admin-token-file", str(token))
    assert done.returncode == 1
    assert "holds no token" in done.stderr
    assert "too-short" not in done.stderr
    assert run(empty_database_url, "status").returncode == 3
