"""Another `gpu-dev` on the PATH is said, first or second; the same one at two places is not another."""

import os
from pathlib import Path

import pytest

from gpu_dev.main import main
from gpu_dev.namesakes import namesake_warning


def program(folder: Path, *, mode: int = 0o755) -> Path:
    folder.mkdir()
    path = folder / "gpu-dev"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def warned(own: Path, *folders: Path) -> str | None:
    return namesake_warning(own, {"PATH": os.pathsep.join(map(str, folders))})


def test_one_alone_is_no_reason_to_warn(tmp_path: Path) -> None:
    own = program(tmp_path / "own")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "gpu-dev").symlink_to(own)
    data = program(tmp_path / "data", mode=0o644)
    assert warned(own, linked, data.parent, own.parent, tmp_path / "missing") is None
    assert namesake_warning(own, {}) is None
    assert namesake_warning(own, {"PATH": ":"}) is None


def test_another_one_is_said_with_the_one_that_the_path_finds(tmp_path: Path) -> None:
    own, other = program(tmp_path / "own"), program(tmp_path / "other")
    first = warned(own, other.parent, own.parent)
    assert first is not None
    assert f"{other}. The PATH finds it first. Put {own.parent} before {other.parent}" in first
    assert warned(own, other.parent) == first
    second = warned(own, own.parent, other.parent)
    assert second is not None
    assert f"{other}. The PATH finds this one first: {own}." in second


@pytest.mark.parametrize("words", [["--version"], []])
def test_the_version_and_gpu_dev_alone_say_so(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other = program(tmp_path / "own"), program(tmp_path / "other")
    monkeypatch.setattr("sys.argv", [str(own), *words])
    monkeypatch.setenv("PATH", f"{other.parent}:{own.parent}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_DEV_HOME", str(tmp_path))
    for name in ("GPU_DEV_TOKEN", "GPU_DEV_SERVER", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit):
        main()
    assert f"Another program is named gpu-dev: {other}." in capsys.readouterr().err
