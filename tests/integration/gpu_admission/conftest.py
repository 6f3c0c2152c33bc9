"""The process's addresses, served on a loop of their own as the program serves them, in front of a small extender."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_admission.serve import answer
from pod_scheduling.runtime.settings.admission import AdmissionRules
from reservation_core.runtime.http.serving import open_socket
from reservation_core.runtime.settings.http import HttpSettings
from tests.clusters.card_cluster import CardCluster
from tests.integration.gpu_admission.counting_extender import CountingExtender
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real.kube_scheduler import kube_scheduler_of
from tests.waiting import PATIENCE_S


@dataclass
class Served:
    """An extender that is served; `port` is the schedulers', `debug_port` the one for profiles."""

    extender: CountingExtender
    port: int
    debug_port: int
    stop: Callable[[], None]
    ended: "Future[None]"
    loop: asyncio.AbstractEventLoop
    scheme: str = "http"
    clients: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, **more: Any) -> httpx.Client:
        """A client that is closed with the server."""
        return self.clients.enter_context(httpx.Client(base_url=self.url, trust_env=False, timeout=60, **more))

    def debug_client(self) -> httpx.Client:
        url = f"http://127.0.0.1:{self.debug_port}"
        return self.clients.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=60))


@contextmanager
def served(extender: CountingExtender, http: HttpSettings | None = None, **rules: Any) -> Iterator[Served]:
    """Serve until the block's end."""
    settled = AdmissionRules(**{"drain_s": 0, **rules})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served")
    thread.start()
    opened, debugging = open_socket("127.0.0.1:0"), open_socket("127.0.0.1:0")
    stop = asyncio.Event()
    for socket in (opened, debugging):
        socket.listen()  # who comes before the server is there waits

    def stopped() -> None:
        loop.call_soon_threadsafe(stop.set)

    serving = answer(extender, opened, debugging, settled, http or HttpSettings(), stop)
    ended = asyncio.run_coroutine_threadsafe(serving, loop)
    made = Served(extender, opened.getsockname()[1], debugging.getsockname()[1], stopped, ended, loop)
    made.scheme = "http" if settled.tls_cert is None else "https"
    try:
        with made.clients:
            yield made
    finally:
        stopped()
        try:
            ended.result(PATIENCE_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(PATIENCE_S)
            loop.close()
            opened.close()
            debugging.close()


@pytest.fixture
def extender() -> CountingExtender:
    return CountingExtender({"n1": 8, "n2": 1, "n3": 4})


@pytest.fixture
def running(extender: CountingExtender) -> Iterator[Served]:
    with served(extender) as made:
        yield made


@pytest.fixture
def client(running: Served) -> httpx.Client:
    return running.client()


@pytest.fixture
def pair_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pair"
    folder.mkdir()
    return folder


@pytest.fixture
async def cards(api_server: ApiServer, namespace: str) -> AsyncIterator[CardCluster]:
    async with api_server.client() as client:
        made = CardCluster(client, namespace)
        yield made
        await client.call("DELETE", made.path, {"gracePeriodSeconds": 0})  # Volcano's queue counts them for ever
        await made.clean_up()


@pytest.fixture
def kube_scheduler(api_server: ApiServer) -> Path:
    program = kube_scheduler_of(api_server)
    if program is None:
        pytest.skip("KUBEBUILDER_ASSETS names no kube-scheduler")
    return program
