"""Images for a real container runtime, in docker's archive format: busybox, a user, and what else a test wants."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from gpu_dev.sync import carried
from reservation_core.domain.sync.files_program import MODULES, python_words

USER = 1000
WORKLOAD_IMAGE = "registry.test/workload:1"
TOOLS_IMAGE = "registry.test/session-tools:1"
SERVER_IMAGE = "registry.test/reservation-processor:1"
_SESSION_TOOLS = Path(__file__).parents[3] / "deploy" / "session-tools"


def missing_for_tools() -> str:
    """What keeps the image of session tools from being made here; empty if nothing does."""
    programs = ("/usr/lib/openssh/sftp-server", "scp", "rsync", "ldd")
    absent = [program for program in programs if shutil.which(program) is None]
    if not [*Path("/usr/lib").rglob("libnss_wrapper.so")]:
        absent.append("libnss_wrapper.so")
    return f"this machine lacks {', '.join(absent)}" if absent else ""


def write_workload_image(busybox: Path, target: Path) -> None:
    """The image of jobs: busybox, its commands, a user and a folder for everybody."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        _add_busybox(archive, busybox)
        _add(archive, "etc/passwd", f"dev:x:{USER}:{USER}:dev:/tmp:/bin/sh\n".encode())
    settings = {"Env": ["PATH=/bin"], "Cmd": ["sleep", "2147483647"], "User": str(USER)}
    _write(target, WORKLOAD_IMAGE, layer.getvalue(), settings)


def write_tools_image(busybox: Path, target: Path) -> None:
    """The image of `deploy/session-tools`, with busybox in place of Debian."""
    layer = io.BytesIO()
    with tempfile.TemporaryDirectory() as name, tarfile.open(fileobj=layer, mode="w") as archive:
        folder = Path(name) / "gpu-dev"
        subprocess.run(["sh", str(_SESSION_TOOLS / "collect.sh"), str(folder)], check=True, capture_output=True)
        _add_busybox(archive, busybox)
        archive.add(folder, "opt/gpu-dev")
    settings = {"Env": ["PATH=/bin"], "User": "65532:65532", "Entrypoint": ["cp", "-R", "/opt/gpu-dev/.", "/tools"]}
    _write(target, TOOLS_IMAGE, layer.getvalue(), settings)


def write_server_image(busybox: Path, target: Path) -> None:
    """An image of the server as far as jobs' files need it, with busybox and this machine's Python."""
    layer = io.BytesIO()
    with tempfile.TemporaryDirectory() as name, tarfile.open(fileobj=layer, mode="w") as archive:
        subprocess.run([sys.executable, "-m", "gpu_dev.sync.carried", name], check=True)
        shutil.copy2(carried.__file__, Path(name) / MODULES / "gpu_dev" / "sync")
        _add_busybox(archive, busybox)
        words = " ".join(word for word in python_words("/python") if word not in ("-I", "-S"))
        _add(
            archive,
            "bin/python",
            f'#!/bin/sh\nexport PYTHONPATH=/python/{MODULES}\nexec {words} "$@"\n'.encode(),
            0o755,
        )
        Path(name).chmod(0o755)
        archive.add(name, "python")
    _write(target, SERVER_IMAGE, layer.getvalue(), {"Env": ["PATH=/bin"], "User": "65532:65532"})


def _add_busybox(archive: tarfile.TarFile, busybox: Path) -> None:
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp"):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(folder)
    _add(archive, "bin/busybox", busybox.read_bytes(), 0o755)
    names = subprocess.run([str(busybox), "--list"], check=True, capture_output=True, text=True).stdout.split()
    for name in names:
        if name != "busybox":
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)


def _write(target: Path, image: str, layer: bytes, settings: dict[str, object]) -> None:
    root = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": settings, "rootfs": root}).encode()
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "config.json", config)
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    archive.addfile(file, io.BytesIO(content))
