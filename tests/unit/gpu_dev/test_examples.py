"""Examples in help: each reaches the server, unless this machine lacks what it names."""

import contextlib
import io
import shlex
from pathlib import Path

import pytest

from gpu_dev.display.command_examples import EXAMPLES
from gpu_dev.errors import ExitCode
from gpu_dev.main import main

WITHOUT_SERVER = {
    "up", "db migrate", "db status", "psql", "completion", "config-ssh", "login", "logout", "slurm install",
    "slurm remove",
}  # fmt: skip
LACKING = ("No such file", "from a terminal", "without a terminal", "There is no public key", "No SSH agent")
"""What makes an example fail before that: files, keys and terminals that a test has not."""


@pytest.mark.parametrize("path", sorted(EXAMPLES.keys() - WITHOUT_SERVER))
def test_the_options_of_an_example_go_together(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "GPU_DEV_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("GPU_DEV_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("GPU_DEV_TOKEN", "x")
    monkeypatch.setattr("gpu_dev.server.exchange.BRIEF_S", ())
    for example in EXAMPLES[path]:
        code, said = ended(example.partition(" > ")[0], monkeypatch)
        assert code == ExitCode.UNAVAILABLE or any(words in said for words in LACKING), (example, said)


def ended(example: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int | str | None, str]:
    """Type an example, off a terminal; the exit code and stderr."""
    monkeypatch.setattr("sys.argv", [word for word in shlex.split(example) if not word.startswith("GPU_DEV_")])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    errors = io.StringIO()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as left,
    ):
        main()
    return left.value.code, errors.getvalue()
