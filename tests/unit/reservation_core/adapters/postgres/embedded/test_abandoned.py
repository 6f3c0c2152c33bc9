"""Which databases nobody's home leads to: never one that somebody could still want unknowingly."""

import os
import shutil
from pathlib import Path

import pytest

from reservation_core.adapters.postgres.embedded import layout, postmaster
from reservation_core.adapters.postgres.embedded.abandoned import abandoned_databases


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where databases lie that are outside their homes."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(layout, "SHARED_ROOT", folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home on a disk of its own."""
    home = tmp_path / "disk" / "a home"
    home.mkdir(parents=True)
    return home


def database_of(home: Path, shared: Path, name: str = "home-1") -> Path:
    """What `layout` makes for a home that the server's account can't enter."""
    base = shared / name
    (base / "data").mkdir(parents=True)
    (base / layout.BELONGS_TO).write_text(f"{home / 'postgres'}\n")
    (home / "postgres").symlink_to(base)
    return base


def test_one_in_use_is_not(shared: Path, home: Path) -> None:
    database_of(home, shared)
    assert abandoned_databases() == []


def test_one_whose_home_was_deleted_is(shared: Path, home: Path) -> None:
    base = database_of(home, shared)
    shutil.rmtree(home)
    assert abandoned_databases() == [base]
    assert (base / "data").exists()


def test_one_whose_home_was_deleted_and_made_anew_is(shared: Path, home: Path) -> None:
    base = database_of(home, shared)
    shutil.rmtree(home)
    home.mkdir()
    database_of(home, shared, "home-2")
    assert abandoned_databases() == [base]


def test_one_whose_disk_is_away_is_not(shared: Path, home: Path) -> None:
    database_of(home, shared)
    shutil.rmtree(home.parent)
    assert abandoned_databases() == []


def test_one_with_a_server_is_not(shared: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = database_of(home, shared)
    shutil.rmtree(home)
    running = postmaster.Postmaster(os.getpid(), base / "run", ready=True)
    monkeypatch.setattr(postmaster, "find", lambda data: running if data == base / "data" else None)
    assert abandoned_databases() == []


@pytest.mark.parametrize("note", [None, b"", b"\xff\xfe"])
def test_one_that_does_not_say_whose_it_is_is_not(shared: Path, home: Path, note: bytes | None) -> None:
    base = database_of(home, shared)
    shutil.rmtree(home)
    (base / layout.BELONGS_TO).unlink()
    if note is not None:
        (base / layout.BELONGS_TO).write_bytes(note)
    assert abandoned_databases() == []
