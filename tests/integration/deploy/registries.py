"""Registries on loopback: one that images are pushed to, and caches with the variables that the chart gives them.

The program is `registry` or `docker-registry` (a package of Debian) on the PATH, or what GPU_DEV_TEST_REGISTRY names.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx

from tests.kubernetes.real import guarded
from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S, eventually_sync

PROGRAM = os.environ.get("GPU_DEV_TEST_REGISTRY") or shutil.which("registry") or shutil.which("docker-registry")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
USER = ("ada", "se:cret")
TOKEN = "t0ken"

# The file in the program's image; variables come on top of it.
_FILE = """
version: 0.1
log: {fields: {service: registry}}
storage: {cache: {blobdescriptor: inmemory}, filesystem: {rootdirectory: /var/lib/registry}}
http: {addr: ":5000", headers: {X-Content-Type-Options: [nosniff]}}
health: {storagedriver: {enabled: true, interval: 10s, threshold: 3}}
"""


@dataclass(frozen=True, slots=True)
class Image:
    """A pushed image: the digests of its manifest and its only layer."""

    manifest: str
    layer: str


class Registry:
    """A registry in a folder of its own, which stays when it is stopped."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._variables = {
            **variables,
            "REGISTRY_HTTP_ADDR": f"127.0.0.1:{self.port}",
            "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(folder / "data"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def state(self) -> Path:
        """What a cache keeps of when its content expires."""
        return self.folder / "data" / "scheduler-state.json"

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it, without waiting until it answers."""
        assert PROGRAM is not None
        (self.folder / "config.yml").write_text(_FILE)
        variables = [f"{name}={value}" for name, value in self._variables.items()]
        command = ["env", "-i", *variables, PROGRAM, "serve", str(self.folder / "config.yml")]
        self._process = guarded.start(command, self.folder / "log")
        return self._process

    def start(self) -> None:
        """Start it, and wait until it answers."""
        process = self.launch()

        def answers() -> bool:
            assert process.poll() is None, self.log
            try:
                return httpx.get(f"{self.url}/v2/", timeout=PATIENCE_S).status_code in (200, 401)
            except httpx.TransportError:
                return False

        eventually_sync(answers)

    def stop(self) -> None:
        if self._process is not None:
            guarded.end(self._process)
            self._process = None

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}/v2/{path}", headers={"Accept": MANIFEST}, timeout=PATIENCE_S)

    def blobs(self) -> set[str]:
        """The digests of all that is stored."""
        return {f"sha256:{path.parent.name}" for path in self.folder.glob("data/docker/registry/v2/blobs/*/*/*/data")}


@contextmanager
def behind_tokens(registry: Registry) -> Iterator[tuple[str, list[str]]]:
    """A front of a registry that wants a token, which USER alone gets, as the large public registries do.

    Its URL, and who was given a token.
    """
    given: list[str] = []

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/token"):
                self._give()
            elif self.headers["Authorization"] == f"Bearer {TOKEN}":
                accepted = {"Accept": MANIFEST}
                behind = httpx.request(self.command, f"{registry.url}{self.path}", headers=accepted, timeout=PATIENCE_S)
                self._answer(behind.status_code, behind.content, dict(behind.headers))
            else:
                realm = f"http://127.0.0.1:{server.server_port}/token"
                self._answer(401, b"", {"WWW-Authenticate": f'Bearer realm="{realm}",service="test"'})

        do_HEAD = do_GET  # noqa: N815 - the library's name

        def _give(self) -> None:
            if self.headers["Authorization"] != f"Basic {b64encode(':'.join(USER).encode()).decode()}":
                self._answer(401, b"", {})
                return
            given.append(USER[0])
            self._answer(200, json.dumps({"token": TOKEN}).encode(), {"Content-Type": "application/json"})

        def _answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", given
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def push(registry: Registry, name: str, tag: str, text: str) -> Image:
    """Push an image of one layer, a file with this text."""
    with httpx.Client(base_url=registry.url, timeout=PATIENCE_S) as client:
        archive = _archive(text)
        diff = _digest(archive)
        configuration = json.dumps(
            {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
        ).encode()
        layer = gzip.compress(archive, mtime=0)
        parts = [
            {"mediaType": f"application/vnd.oci.image.{kind}", "digest": _upload(client, name, data), "size": len(data)}
            for kind, data in (("config.v1+json", configuration), ("layer.v1.tar+gzip", layer))
        ]
        manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": [parts[1]]}
        ).encode()
        url = f"/v2/{name}/manifests/{tag}"
        client.put(url, content=manifest, headers={"Content-Type": MANIFEST}).raise_for_status()
    return Image(_digest(manifest), _digest(layer))


def _archive(text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("file")
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _upload(client: httpx.Client, name: str, data: bytes) -> str:
    begun = client.post(f"/v2/{name}/blobs/uploads/").raise_for_status()
    url = httpx.URL(begun.headers["Location"]).copy_add_param("digest", _digest(data))
    headers = {"Content-Type": "application/octet-stream"}
    client.put(url, content=data, headers=headers).raise_for_status()
    return _digest(data)
