"""The program around a job's command: signals come once, and answers that break off are asked for again."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from os import killpg
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from gpu_dev.sync import inside
from gpu_dev.sync.inside import JobServer, NoFilesError, keep_files
from reservation_core.domain.sync.frames import framed, read_pack
from tests.waiting import PATIENCE_S

AROUND = "import os, sys; from gpu_dev.sync.inside import run_command; sys.exit(run_command(sys.argv[1:], os.environ))"
COMMAND = """
import signal, sys, time
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR1:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1):
    signal.signal(number, say)
print("ready", flush=True)
while True:
    time.sleep(0.02)  # signal.pause() would miss a signal that came just before it
"""


def test_a_command_gets_signals_once() -> None:
    """The parent signals the whole group; others signal the first process alone."""
    words = [sys.executable, "-c", AROUND, sys.executable, "-c", COMMAND]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as around:
        try:
            assert around.stdout is not None
            assert around.stdout.readline() == "ready\n"
            killpg(around.pid, signal.SIGTERM)
            assert around.stdout.readline() == "SIGTERM\n"
            for name in ("QUIT", "ALRM", "TERM", "USR1"):
                subprocess.run(["kill", f"-{name}", str(around.pid)], check=True)
                assert around.stdout.readline() == f"SIG{name}\n"
            assert around.wait() == 7
        finally:
            with suppress(ProcessLookupError):
                killpg(around.pid, signal.SIGKILL)


class Breaking(BaseHTTPRequestHandler):
    """Breaks every second answer off in its middle."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        content = framed(sha256(b"abc").digest(), b"abc") if self.path.startswith("/data") else b'{"a": 1}'
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = content[: len(content) // 2] if self.asked % 2 else content
        self.wfile.write(b"%x\r\n%s" % (len(content), part))
        if part == content:
            self.wfile.write(b"\r\n0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    monkeypatch.setattr(inside, "_PAUSES_S", (0, 0))
    with HTTPServer(("127.0.0.1", 0), Breaking) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield JobServer({
            "GPU_DEV_JOB_SERVER": f"http://127.0.0.1:{serving.server_port}", "GPU_DEV_JOB_TOKEN": "x",
            "GPU_DEV_JOB_ID": "job-1",
        })  # fmt: skip
        serving.shutdown()
        thread.join()


def test_an_answer_that_breaks_off_is_asked_for_again(server: JobServer) -> None:
    assert list(server.chunks("/data", 1)) == [(sha256(b"abc").digest(), b"abc")]
    assert server.call("GET", "/fields") == {"a": 1}


def asking(port: int) -> JobServer:
    return JobServer({
        "GPU_DEV_JOB_SERVER": f"http://127.0.0.1:{port}", "GPU_DEV_JOB_TOKEN": "x", "GPU_DEV_JOB_ID": "job-1",
    })  # fmt: skip


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time for all tries together: GPUs wait meanwhile."""
    monkeypatch.setattr(inside, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(inside, "_SILENCE_S", 0.2)
    monkeypatch.setattr(inside, "_PAUSES_S", (0,) * 10_000)
    with socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        server = asking(silent.getsockname()[1])
        with pytest.raises(NoFilesError, match="does not answer"):
            server.call("GET", "/x")
        with pytest.raises(NoFilesError):
            list(server.chunks("/data", 1))
        tries = 0
        silent.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                tries += 1
    assert 2 <= tries <= 10


@pytest.fixture
def elsewhere() -> Iterator[HTTPServer]:
    """A server that sends everything on to `/other`, and notes what it was asked."""

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if self.path == "/x" else 200)
            self.send_header("Location", "/other")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *words: object) -> None:
            pass

    asked: list[str] = []
    with HTTPServer(("127.0.0.1", 0), Redirecting) as serving:
        serving.asked = asked  # type: ignore[attr-defined]
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_the_token_follows_no_redirect(elsewhere: HTTPServer) -> None:
    with pytest.raises(NoFilesError, match=r"302 and another address, '/other'; an administrator sets GPU_DEV_JOB"):
        asking(elsewhere.server_port).call("GET", "/x")
    assert elsewhere.asked == ["/x"]  # type: ignore[attr-defined]


def test_the_token_goes_to_no_proxy(elsewhere: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert asking(elsewhere.server_port).call("GET", "/direct") == {}
    assert elsewhere.asked == ["/direct"]  # type: ignore[attr-defined]


class Keeping(JobServer):
    """Notes the paths that are sent, and lacks chunks that were not."""

    def __init__(self, between: Callable[[], object] = lambda: None) -> None:
        super().__init__({"GPU_DEV_JOB_SERVER": "", "GPU_DEV_JOB_TOKEN": "", "GPU_DEV_JOB_ID": ""})
        self.paths: list[str] = []
        self.chunks_sent: set[str] = set()
        self._between = between

    def put(self, path: str, fields: dict[str, list[dict[str, Any]]]) -> object:
        if "entries" in fields:
            self.paths = [entry["path"] for entry in fields["entries"]]
        wanted = {chunk for entry in fields.get("entries", []) for chunk in entry.get("chunks", ())}
        missing = sorted(wanted - self.chunks_sent)
        self._between()
        return {"id": None if missing else "x", "missing": missing}

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> object:
        self.chunks_sent |= {digest.hex() for digest, _ in read_pack(body or b"")}
        return {}


def test_what_is_of_git_is_not_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "out" / ".git" / "hooks" / "post-checkout").touch()
    (tmp_path / "out" / "x").touch()
    keeping = Keeping()
    keep_files(keeping, tmp_path, ["out"])
    assert keeping.paths == ["out", "out/x"]
    assert "not kept: out/.git is of Git" in capfd.readouterr().err


@pytest.mark.parametrize("change", ["grown", "same size", "removed"])
def test_a_file_that_changes_is_left_out_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str], change: str) -> None:
    (tmp_path / "model").write_bytes(b"big")
    beat = tmp_path / "beat"
    beat.write_bytes(b"a")

    def between() -> None:
        match change:
            case "grown":
                beat.write_bytes(beat.read_bytes() + b"b")
            case "same size":
                beat.write_bytes(b"c")
            case _:
                beat.unlink(missing_ok=True)

    keeping = Keeping(between)
    keep_files(keeping, tmp_path, ["."])
    assert keeping.paths == ["model"]
    assert sha256(b"big").hexdigest() in keeping.chunks_sent
    assert capfd.readouterr().err.count("not kept") == 1


def test_what_is_too_large_is_left_out_unread(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A sparse file would be read for hours."""
    (tmp_path / "a").write_bytes(b"12345")
    with (tmp_path / "b").open("wb") as sparse:
        sparse.truncate(2**42)
    (tmp_path / "c").write_bytes(b"12345")
    (tmp_path / "d").write_bytes(b"1")
    keeping = Keeping()
    keep_files(keeping, tmp_path, [".", "a"], 10)
    assert keeping.paths == ["a", "c"]
    said = capfd.readouterr().err
    assert f"b has {2**42} bytes; a job may keep 10 in all, and the files before it have 5" in said
    assert "not kept: d has 1 bytes" in said


def test_more_files_than_can_be_kept_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inside, "MOST_ENTRIES", 2)
    for name in "abcd":
        (tmp_path / name).touch()
    keeping = Keeping()
    keep_files(keeping, tmp_path, ["."])
    assert keeping.paths == ["a", "b"]
    assert capfd.readouterr().err.splitlines() == [
        "gpu-dev: not kept: c and what follows, as there are 2 files and folders before it"
    ]


def test_names_that_collide_are_left_out_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Model").touch()
    (tmp_path / "model").touch()
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "m").touch()
    (tmp_path / "latest").symlink_to("v1")
    keeping = Keeping()
    keep_files(keeping, tmp_path, ["Model", "model", "latest", "latest/m"])
    assert keeping.paths == ["Model", "latest/m"]
    said = capfd.readouterr().err
    assert "not kept: the path 'model' differs from another one in upper and lower case only" in said
    assert "not kept: 'latest', which is no folder" in said


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """Nor is a link there followed."""
    read = "import sys, pathlib; from gpu_dev.sync.folder_files import read_chunks\n"
    read += "print(list(read_chunks(pathlib.Path(sys.argv[1]), 3)))"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("x")
    for name, said in (("pipe", "changed while it was read"), ("link", "symbolic links")):
        words = [sys.executable, "-c", read, str(tmp_path / name)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
        assert said in done.stderr
