"""A real Prometheus scrapes a real server, and answers every question of every dashboard."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.chart.dashboards import dashboards, panels
from tests.e2e.systems.system_process import SystemProcess, ended
from tests.waiting import PATIENCE_S, eventually_sync

PROMETHEUS = shutil.which("prometheus")
CONFIGURATION = """
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: gpu-dev
    honor_labels: true
    static_configs: [{targets: ["TARGET"]}]
"""
RECORDING = """\
at_s,gpu,utilisation,memory_used,power_w,temperature_c,ecc_uncorrected,processes
0,0,0.75,1073741824,412.5,61,0,1
0,1,0.02,1048576,71,33,0,0
0,2,0.5,1048576,71,33,0,0
"""
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="Prometheus is not installed (Debian, Ubuntu: apt install prometheus)"
)


@dataclass
class Monitor:
    """A running Prometheus."""

    http: httpx.Client

    def ask(self, expression: str) -> list[Any]:
        """The answer to an expression, now."""
        return self._answer("query", query=filled(expression))

    def ask_over_time(self, expression: str) -> list[Any]:
        """The answer to an expression for the last minute."""
        now = float(self._answer("query", query="time()")[0])
        return self._answer("query_range", query=filled(expression), start=now - 60, end=now, step=1)

    def values_of(self, query: str) -> list[Any]:
        """The values of a variable by its query, `label_values(metric, label)`."""
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert asked, query
        return self._answer(f"label/{asked[2]}/values", **{"match[]": asked[1]})

    def _answer(self, path: str, **query: str | float) -> list[Any]:
        answer = self.http.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, f"{query}: {answer.text}"
        found = answer.json()
        assert found["status"] == "success"
        assert not found.get("warnings"), found
        data = found["data"]
        result: list[Any] = data if isinstance(data, list) else data["result"]
        return result


def filled(expression: str) -> str:
    """An expression as Grafana sends it with all projects and nodes chosen."""
    return re.sub(r"\$(project|node)\b", ".*", expression).replace("$__rate_interval", "1m")


@pytest.fixture(scope="module")
def system(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemProcess]:
    """A server with a job that runs, one that waits, one that ended, and a booking."""
    folder = tmp_path_factory.mktemp("dashboards")
    (folder / "use.csv").write_text(RECORDING)
    running = SystemProcess(
        folder / "home",
        forked=True,
        GPU_DEV_DATABASE_URL=module_database_url,
        GPU_DEV_LOCAL_USE=str(folder / "use.csv"),
        GPU_DEV_SAMPLE_EVERY_S="1",
    )
    try:
        with running.start() as http:
            prepare(running, http)
        yield running
    finally:
        running.clear()


def prepare(system: SystemProcess, http: httpx.Client) -> None:
    http.post("/v1/projects", json={"name": "vision"}).raise_for_status()
    me = http.get("/v1/users/me").raise_for_status().json()["name"]
    http.put(f"/v1/projects/vision/members/{me}").raise_for_status()
    work = {"duration": 3000, "workload": {"command": ["sleep", "3000"]}}
    for asked in ({"gpus": 2, "project": "vision"}, {"gpus": 4}):
        system.jobs.append(http.post("/v1/jobs", json={**asked, **work}).raise_for_status().json()["id"])
    booking = {"gpus": 1, "start": f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%MZ}", "duration": "PT4H"}
    http.post("/v1/bookings", json=booking).raise_for_status()


@pytest.fixture(scope="module")
def monitor(system: SystemProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitor]:
    """Prometheus, once it has seen what the server measures."""
    folder = tmp_path_factory.mktemp("prometheus")
    configuration = folder / "prometheus.yml"
    configuration.write_text(CONFIGURATION.replace("TARGET", system.url.removeprefix("http://")))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    assert PROMETHEUS is not None
    command = [PROMETHEUS, f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=PATIENCE_S, trust_env=False) as http:
            found = Monitor(http)

            def ready() -> bool:
                assert process.poll() is None, (folder / "log").read_text()
                with suppress(httpx.TransportError):
                    return http.get("/-/ready").status_code == 200
                return False

            eventually_sync(ready)
            with system.client() as client:
                ended(client, system.submit(client, 1, "true"))
            # Ended jobs are counted ten seconds later, and a rate needs two scrapes that differ.
            eventually_sync(lambda: found.ask("sum(increase(gpu_dev_job_wait_seconds_count[1m])) > 0"))
            eventually_sync(lambda: found.ask('count(gpu_dev_gpu_utilization_ratio{project="vision"}) == 2'))
            yield found
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def test_every_question_of_every_panel_is_answered(monitor: Monitor) -> None:
    empty = set()
    for name, panel in panels():
        for target in panel["targets"]:
            ask = monitor.ask_over_time if panel["type"] == "timeseries" else monitor.ask
            if not ask(target["expr"]):
                empty.add((name, panel["title"]))
    assert empty == set()


def test_variables_have_values(monitor: Monitor) -> None:
    asked = [
        variable["query"]
        for dashboard in dashboards().values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    assert {query: monitor.values_of(query) for query in asked} == {
        "label_values(gpu_dev_job_gpus, project)": ["vision"],
        "label_values(gpu_dev_gpu_state, node)": [monitor.ask("gpu_dev_node_available")[0]["metric"]["node"]],
    }


def test_figures_are_those_of_the_recording(monitor: Monitor) -> None:
    figures = {
        ("gpu-dev-server.json", "GPUs"): 4,
        ("gpu-dev-server.json", "Held"): 0.5,
        ("gpu-dev-server.json", "Utilisation of held GPUs"): 0.385,
        ("gpu-dev-server.json", "GPUs without samples"): 1,
        ("gpu-dev-project.json", "GPUs held"): 2,
        ("gpu-dev-project.json", "Jobs with GPUs"): 1,
        ("gpu-dev-project.json", "Held and idle"): 1,
        ("gpu-dev-nodes.json", "Nodes that take work"): 1,
        ("gpu-dev-nodes.json", "Nodes that take none"): 0,
        ("gpu-dev-queue.json", "Jobs that wait"): 1,
    }
    shown = {
        (name, panel["title"]): float(monitor.ask(panel["targets"][0]["expr"])[0]["value"][1])
        for name, panel in panels()
        if (name, panel["title"]) in figures
    }
    assert shown == pytest.approx(figures)
