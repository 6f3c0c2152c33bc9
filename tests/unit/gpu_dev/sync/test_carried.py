"""The program of jobs' files in images without Python: carried into a bare root, as the first process there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from reservation_core.domain.sync.files_program import FOLDER_PATH, program_words
from reservation_core.domain.sync.frames import framed
from tests.waiting import PATIENCE_S, eventually_sync

_PLACE = "/opt/gpu-dev/files"
_BUSYBOX = Path("/bin/busybox")
_NOBODY = 12345
_CONTENT = b"#!/bin/sh\necho \xc3\xa4; cat 'gr\xc3\xb6\xc3\x9fe'; exit 7\n"
_SECOND = b"x" * 1000
_ENTRIES = [
    {"path": "empty", "kind": "folder"},
    {"path": "größe", "kind": "file", "size": len(_SECOND), "chunks": [sha256(_SECOND).hexdigest()]},
    {"path": "link", "kind": "link", "target": "run.sh"},
    {
        "path": "run.sh", "kind": "file", "size": len(_CONTENT), "chunks": [sha256(_CONTENT).hexdigest()],
        "executable": True,
    },
]  # fmt: skip


class Files(BaseHTTPRequestHandler):
    """A job's files, and what it keeps."""

    entries = _ENTRIES
    kept: list[str]
    held: threading.Event | None = None
    asked: threading.Event

    def do_GET(self) -> None:
        if self.path.endswith("/files"):
            content = json.dumps({"id": "0", "entries": self.entries, "chunks": 2, "fetch": ["out"]}).encode()
        else:
            content = b"".join(framed(sha256(part).digest(), part) for part in (_SECOND, _CONTENT))
            self.asked.set()
            if self.held is not None:
                self.held.wait()
        self._answer(content)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/folders"):
            type(self).kept += [entry["path"] for entry in json.loads(body)["entries"]]
        self._answer(b'{"id": "0", "missing": []}')

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a shell, the program and an empty folder."""
    if os.geteuid() or not _BUSYBOX.exists() or shutil.which("unshare") is None:
        pytest.skip("needs root, busybox and unshare")
    root = tmp_path_factory.mktemp("root")
    root.chmod(0o755)
    (root / "bin").mkdir()
    (root / "dev").mkdir()
    (root / "dev" / "null").touch()  # without it, the shell begins nothing in the background
    shutil.copy(_BUSYBOX, root / "bin")
    for applet in ("sh", "cat", "mkdir", "sleep", "kill", "ps"):
        (root / "bin" / applet).symlink_to("busybox")
    subprocess.run([sys.executable, "-m", "gpu_dev.sync.carried", f"{root}{_PLACE}"], check=True)
    return root


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    monkeypatch.setattr(Files, "kept", [], raising=False)
    monkeypatch.setattr(Files, "asked", threading.Event(), raising=False)
    with HTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        if Files.held is not None:
            Files.held.set()
        server.shutdown()
        thread.join()


class InRoot:
    """Runs commands as a container's first process."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.folder = root / FOLDER_PATH.removeprefix("/")
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self._environ = {
            "PATH": "/bin", "GPU_DEV_JOB_SERVER": f"http://127.0.0.1:{port}", "GPU_DEV_JOB_TOKEN": "x",
            "GPU_DEV_JOB_ID": "job-1", "LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu", "PYTHONHOME": "/nowhere",
        }  # fmt: skip

    def words(self, *command: str) -> list[str]:
        # As `runc` does: into the folder, then the command as process 1 of its own namespace.
        inside = f'cd {FOLDER_PATH} && exec "$@"'
        entered = [
            str(shutil.which("chroot", path="/usr/sbin:/sbin")),
            f"--userspec={_NOBODY}:{_NOBODY}",
            str(self.root),
            "/bin/sh",
            "-c",
            inside,
            "sh",
        ]
        return ["/usr/bin/unshare", "--pid", "--fork", "--kill-child", *entered, *program_words(_PLACE), *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*command), env=self._environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    @contextmanager
    def begin(self, *command: str) -> Iterator["subprocess.Popen[str]"]:
        pipe = subprocess.PIPE
        with subprocess.Popen(self.words(*command), env=self._environ, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def signal(self, process: "subprocess.Popen[str]", number: int) -> None:
        """Signal the first process from outside, as a runtime does."""
        (first,) = children(process.pid)
        os.kill(first, number)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_complete(process: "subprocess.Popen[str]") -> bool:
    """Wait until all files have come: a session that is ended before has none to keep. False if it ends before."""
    assert process.stderr is not None
    return any("The folder is complete." in line for line in process.stderr)


@pytest.fixture
def inside(bare: Path, serving: HTTPServer) -> Iterator[InRoot]:
    made = InRoot(bare, serving.server_port)
    yield made
    shutil.rmtree(made.folder)


def test_a_command_works_in_its_files_in_an_image_without_python(inside: InRoot) -> None:
    """It has executable files, links, names in any language, and its exit code; libraries of the image don't matter."""
    done = inside.run("sh", "-c", "mkdir out; echo $GPU_DEV_SYNC_FOLDER $LD_LIBRARY_PATH >out/x; exec ./link")
    assert (done.returncode, done.stdout) == (7, "ä\n" + _SECOND.decode()), done.stderr
    assert (inside.folder / "out" / "x").read_text() == "/gpu-dev /usr/lib/x86_64-linux-gnu\n"
    assert Files.kept == ["out", "out/x"]


def test_signals_from_outside_come_to_the_command_once(inside: InRoot) -> None:
    script = "trap 'mkdir out; exit 5' TERM; trap 'echo one' USR1; echo ready; while :; do sleep 0.1; done"
    with inside.begin("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        inside.signal(process, signal.SIGUSR1)
        inside.signal(process, signal.SIGTERM)
        assert process.communicate(timeout=PATIENCE_S)[0] == "one\n"
        assert process.returncode == 5
    assert Files.kept == ["out"]


def test_orphans_are_reaped(inside: InRoot) -> None:
    script = "for one in 1 2 3; do (sleep 0.1 & ); done; echo ready; exec sleep 60"
    with inside.begin("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (first,) = children(process.pid)
        eventually_sync(lambda: len(children(first)) == 1)
        inside.signal(process, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_what_a_command_leaves_is_ended_before_its_files_are_read(inside: InRoot) -> None:
    """As the kernel would end it with the first process; its writing would spoil what is kept, and it has the GPUs."""
    orphan = "while :; do echo beat >>out/beat; done"
    done = inside.run("sh", "-c", f"mkdir out; echo big >out/model; ({orphan}) & while ! [ -s out/beat ]; do :; done")
    assert done.returncode == 0, done.stderr
    assert Files.kept == ["out", "out/beat", "out/model"]
    assert "not kept" not in done.stderr


def test_processes_of_a_session_may_end_by_themselves(inside: InRoot) -> None:
    with inside.begin() as process:
        assert is_complete(process)
        (inside.folder / "out").mkdir()
        (inside.folder / "out").chmod(0o777)
        (first,) = children(process.pid)
        entering = ["nsenter", f"--target={first}", "--pid", "--root", f"--setuid={_NOBODY}", f"--setgid={_NOBODY}"]
        shell = f"cd {FOLDER_PATH}; trap 'echo over >out/end; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
        words = [*entering, "/bin/sh", "-c", shell]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as entered:
            assert entered.stdout is not None
            assert entered.stdout.readline() == "ready\n"
            inside.signal(process, signal.SIGTERM)
            assert entered.wait(PATIENCE_S) == 0
        assert process.wait(PATIENCE_S) == 0
    assert Files.kept == ["out", "out/end"]


def test_a_job_that_is_ended_while_its_files_come_ends_at_once(inside: InRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "held", threading.Event())
    with inside.begin("sh", "-c", "echo started") as process:
        assert Files.asked.wait(PATIENCE_S)
        inside.signal(process, signal.SIGTERM)
        assert process.communicate(timeout=PATIENCE_S)[0] == ""
        assert process.returncode == 128 + signal.SIGTERM


def test_a_session_keeps_its_files_when_it_is_ended(inside: InRoot) -> None:
    with inside.begin() as process:
        assert is_complete(process)
        (inside.folder / "out").mkdir(exist_ok=True)
        inside.signal(process, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert Files.kept == ["out"]


@pytest.mark.parametrize(
    "entries",
    [
        [{"path": "../x", "kind": "folder"}],
        [{"path": "/etc/x", "kind": "folder"}],
        [{"path": "a", "kind": "link", "target": "/etc"}, {"path": "a/x", "kind": "folder"}],
        [{"path": "a", "kind": "link", "target": "../../etc"}],
    ],
)
def test_hostile_lists_are_refused(
    inside: InRoot, monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, str]]
) -> None:
    monkeypatch.setattr(Files, "entries", entries)
    done = inside.run("sh", "-c", "echo started")
    assert (done.returncode, done.stdout) == (126, "")
    assert "The job's files did not come" in done.stderr
    assert list(inside.folder.iterdir()) == []


def test_a_full_disk_is_said(inside: InRoot) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=1777", "tmpfs", inside.folder], check=True)
    try:
        done = inside.run("sh", "-c", "echo started")
    finally:
        subprocess.run(["umount", inside.folder], check=True)
    assert (done.returncode, done.stdout) == (126, "")
    assert "No space left on device" in done.stderr


def test_a_full_disk_keeps_it_from_being_carried(bare: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        command = [sys.executable, "-m", "gpu_dev.sync.carried", str(tmp_path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "No space left on device" in done.stderr


def test_it_is_carried_twice_to_one_place(bare: Path) -> None:
    command = [sys.executable, "-m", "gpu_dev.sync.carried", f"{bare}{_PLACE}"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
