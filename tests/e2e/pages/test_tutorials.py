"""The tutorials and the README are played: what they say to type is typed, and what they show is what is shown."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.e2e.pages.chart_on_a_laptop import chart_for_a_laptop, installed, served_by_chart
from tests.e2e.pages.laptop import Laptop
from tests.e2e.pages.played_page import DOCS, PageExamples
from tests.e2e.systems.system_process import FINAL, SystemProcess
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.kubernetes.scheduler import Scheduler
from tests.waiting import PATIENCE_S, eventually_sync


@pytest.fixture
def laptop(session_folder: Path) -> Iterator[Laptop]:
    """A computer with Python and nothing of this project."""
    with Laptop.new(session_folder) as made:
        yield made


@pytest.fixture
def server(session_folder: Path, database_url: str) -> Iterator[SystemProcess]:
    """A server with four GPUs, some of which are held as the page says for a server of one's own."""
    settings = {"GPU_DEV_DATABASE_URL": database_url, "GPU_DEV_LOCAL_GPUS": "node1=h100:4"}
    system = SystemProcess(session_folder / "shared server", forked=True, **settings)
    held = page("first-ten-minutes").split("```sh\n")[1].partition("```")[0]
    commands = [shlex.split(line) for line in held.splitlines() if line.strip()]
    try:
        with system.start() as http:
            for program, *arguments in commands:
                assert program == "gpu-dev"
                by_hand = {**os.environ, "GPU_DEV_HOME": str(system.home), "HOME": str(session_folder)}
                command = [sys.executable, "-m", "gpu_dev", *arguments]
                subprocess.run(command, env=by_hand, check=True, timeout=PATIENCE_S)
            eventually_sync(lambda: [job["status"] for job in http.get("/v1/jobs").json()["items"]] == ["running"])
            yield system
            end_all(http)
    finally:
        system.clear()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def token_of(http: httpx.Client, user: str) -> str:
    """A token of somebody who is new."""
    http.post("/v1/users", json={"name": user}).raise_for_status()
    return str(http.post("/v1/tokens", json={"user": user}).raise_for_status().json()["token"])


def end_all(http: httpx.Client) -> None:
    """End all jobs: they outlive a server by design."""

    def none_left() -> bool:
        left = [
            job for job in http.get("/v1/jobs", params={"limit": 100}).json()["items"] if job["status"] not in FINAL
        ]
        for job in left:
            http.post(f"/v1/jobs/{job['id']}/cancel")
        return not left

    eventually_sync(none_left)


def test_the_first_ten_minutes_of_a_user_and_the_first_session(laptop: Laptop, server: SystemProcess) -> None:
    """One after the other, as people do: the second needs what the first has installed."""
    laptop.build_wheel()
    with server.client() as http:
        token = token_of(http, "ada")
    with laptop.terminals({"https://gpus.example.org": server.url}, token) as play:
        play.play(page("first-ten-minutes"))
        play.examples = PageExamples()
        play.play(page("first-session"))


def test_the_first_ten_minutes_of_an_administrator(laptop: Laptop) -> None:
    play_on(laptop, page("first-ten-minutes-administrator"))


def page(name: str) -> str:
    return (DOCS / "tutorial" / f"{name}.md").read_text()


def test_the_readme(laptop: Laptop) -> None:
    play_on(laptop, (DOCS.parent / "README.md").read_text())


def play_on(laptop: Laptop, text: str) -> None:
    """Play a page in a clone of the project, where it starts a server and ends it."""
    project = laptop.clone_project()
    laptop.prepare_make(project)
    with laptop.terminals({"/home/ada/gpu-dev-server": str(project)}, folder=project) as play:
        try:
            play.play(text)
        except AssertionError:
            with suppress(httpx.HTTPError, OSError):  # it may have ended
                end_all_of(laptop, project)
            raise


def end_all_of(laptop: Laptop, project: Path) -> None:
    """End the jobs of a server that a page has started."""
    token = (project / ".gpu-dev" / "admin-token").read_text().strip()
    with httpx.Client(
        base_url=f"http://127.0.0.1:{laptop.port}", headers=bearer(token), trust_env=False, timeout=PATIENCE_S
    ) as http:
        end_all(http)


CLUSTER = "first-ten-minutes-cluster"
WORKERS = {f"gpu-dev-worker{number if number > 1 else ''}": f"node{number}" for number in range(1, 5)}


def test_the_first_ten_minutes_on_a_cluster(laptop: Laptop, api_server: ApiServer, database_url: str) -> None:
    """The chart's objects are in the cluster; the server runs beside it, with the chart's settings."""
    laptop.environment["KUBECONFIG"] = str(api_server.kubeconfig)
    project = laptop.clone_project()
    kubectl = api_server.real and laptop.add_kubectl()
    specs = [NodeSpec(name, gpus=0 if kubectl else 4, labels={"gpu-node-name": node}) for name, node in WORKERS.items()]
    chart = chart_for_a_laptop()
    with (
        installed(api_server, chart),
        Kubelet(api_server, specs, namespace="gpu-dev", resolve=True),
        Scheduler(api_server, namespace="gpu-dev"),
        served_by_chart(api_server, chart, database_url, laptop.home.parent) as system,
        laptop.terminals({"http://127.0.0.1:8080": system.url}, folder=project) as play,
    ):
        if not kubectl:  # the emulator knows too little for it
            laptop.environment |= {"GPU_DEV_SERVER": system.url, "GPU_DEV_TOKEN": system.token}
            play.leave_out(r"kubectl |deploy/kind/fake-gpus\.sh")
        play.play(page(CLUSTER))
        with system.client() as http:
            end_all(http)
