"""The API over TLS, and metrics at a port of their own: the program itself, and real handshakes."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.integration.reservation_core.runtime.http.http_servers import HttpServer, http_server
from tests.programs.prepared_processes import ran
from tests.programs.webhook_process import Pair, new_pair, trusting, write_pair
from tests.waiting import PATIENCE_S, eventually_sync


def answers(server: HttpServer, pair: Pair) -> bool:
    try:
        return replace(server, tls=trusting(pair)).get().status_code == 200
    except httpx.TransportError:
        return False


def test_the_api_serves_over_tls_and_takes_a_new_certificate(tmp_path: Path, database_url: str) -> None:
    first, second = new_pair(), new_pair()
    cert, key = write_pair(first, tmp_path)
    files = {"GPU_DEV_TLS_CERT": str(cert), "GPU_DEV_TLS_KEY": str(key)}
    with http_server("api", tmp_path, database_url, **files) as server:
        assert server.url.startswith("https://")
        assert answers(server, first)
        assert not answers(server, second)
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https", "http") + "/healthz", trust_env=False, timeout=PATIENCE_S)
        metrics = replace(server, tls=trusting(first)).get("/metrics").text
        assert "gpu_dev_certificate_ends_seconds 1." in metrics
        write_pair(second, tmp_path)
        eventually_sync(lambda: answers(server, second))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tls-cert", "there.pem"], "belong together"),
        (["--tls-key", "there.pem"], "belong together"),
        (["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"], "nowhere.pem (GPU_DEV_TLS_CERT)"),
    ],
)
def test_a_certificate_that_can_not_be_shown_is_said_once(
    tmp_path: Path, database_url: str, arguments: list[str], said: str
) -> None:
    settings = {"GPU_DEV_DATABASE_URL": database_url, "GPU_DEV_HOME": str(tmp_path), "GPU_DEV_LISTEN": "127.0.0.1:0"}
    code, told = ran(["api_service", *arguments], settings, tmp_path / "told.log")
    assert code == 2
    [line] = [line for line in told.splitlines() if line.startswith("api_service: ")]
    assert said in line


def test_metrics_have_a_port_of_their_own(tmp_path: Path, database_url: str) -> None:
    with http_server("api", tmp_path, database_url, GPU_DEV_METRICS_LISTEN="127.0.0.1:0") as server:
        elsewhere = replace(server, url=logged_address(tmp_path / "api_service.log"))
        assert "gpu_dev_database_up 1.0" in elsewhere.get("/metrics").text
        assert (server.get("/metrics").status_code, server.get().status_code) == (404, 200)
        for path in ("/healthz", "/v1/jobs", "/"):
            assert elsewhere.get(path).status_code == 404


def logged_address(log: Path) -> str:
    """Where metrics are, as the log says."""

    def found() -> str | None:
        lines = [line for line in log.read_text().splitlines() if '"metrics_listening"' in line]
        return lines[0].partition('"address": "')[2].partition('"')[0] if lines else None

    return str(eventually_sync(found))
