"""Every page of the page list, with something on it: `addresses` of a system that has what `make_things` makes."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from api_service.web.page_list import WEB_ROUTES
from tests.waiting import eventually_sync
from tests.web.web_system import WebSystem

NODES = "titan=h100:4;titus=h100:4;rhea=a100:2"
NO_PAGES = {
    "/session", "/signed-in", "/sign-in/start", "/sign-in/done", "/live", "/now/use",
    "/jobs/{job_id}/terminal", "/jobs/{job_id}/log", "/jobs/{job_id}/log.txt",
    "/jobs/{job_id}/log/part", "/jobs/{job_id}/log/matches", "/calendar/events", "/calendar/bookings",
    "/calendar/check", "/calendar/feed", "/usage.csv", "/admin/policy/choose",
    "/jobs/{job_id}/use.csv", "/nodes/{node}/use.csv",
}  # fmt: skip
"""Data, and addresses that lead elsewhere."""
MORE_PAGES = (
    "/now?view=map", "/now?view=use", "/now?card=titan/0", "/calendar?view=day", "/calendar?view=2weeks&by=type",
    "/calendar?view=month&by=type", "/calendar?as=table", "/calendar?find=yes&gpus=2&length=4h", "/usage?span=month",
    "/disks?user=alice",
)  # fmt: skip
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")


def tomorrow(hours: int = 0) -> str:
    """So many hours after nine."""
    day = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return (day + timedelta(hours=hours)).isoformat()


def make_things(system: WebSystem) -> dict[str, str]:
    """Something for every page to show, and what stands for the parts of addresses."""
    root = system.rest("root")

    def made(path: str, body: dict[str, Any]) -> Any:
        return root.post(path, json=body).raise_for_status().json()

    runs = system.submit("root", "sleep", "3000", duration=3600, gpus=2, gpu_type="h100", name="runs")
    over = system.submit("root", "sh", "-c", "seq 200", gpu_type="a100", name="prints")
    eventually_sync(lambda: system.job(runs)["status"] == "running" and system.job(over)["status"] == "succeeded")
    system.submit(
        "root", "true", gpu_type="h100", name="after-it", after=[{"job": runs, "when": "ended"}, {"job": over}]
    )
    booking: dict[str, Any] = {}
    for number in range(8):
        body = {
            "gpus": 1,
            "gpu_type": "h100",
            "start": tomorrow(3 * number),
            "duration": 7200,
            "title": f"run {number}",
        }
        booking = made("/v1/bookings", body)
    # After the bookings: late in the day these jobs are planned into tomorrow.
    for number in range(12):
        system.submit("root", "true", gpus=4, nodes=2, gpu_type="h100", duration=3600, name=f"waits-{number}")
    made("/v1/projects", {"name": "vision"})
    made("/v1/disks", {"name": "data", "size": "1Gi"})
    made("/v1/disks", {"name": "old", "size": "1Gi"})
    eventually_sync(lambda: root.get("/v1/disks/data").json()["state"] == "ready")
    made("/v1/disks/data/snapshots", {"name": "first"})
    root.delete("/v1/disks/old").raise_for_status()
    root.put("/v1/projects/vision/members/alice").raise_for_status()
    window = made("/v1/maintenance", {"node": "rhea", "start": tomorrow(72), "end": tomorrow(80), "reason": "new fans"})
    tokens = root.get("/v1/tokens").raise_for_status().json()["items"]
    return {
        "job_id": runs, "booking_id": booking["id"], "project": "vision", "user": "alice", "name": "alice",
        "scope": "default", "node": "titan", "window": window["id"], "token": tokens[-1]["id"], "over": over,
        "disk": "data", "snapshot": "first",
    }  # fmt: skip


def addresses(things: dict[str, str]) -> list[str]:
    """Every page."""
    routes = [route for route in WEB_ROUTES if route.method == "GET" and route.part_of is None]
    paths = [route.path for route in routes if route.path not in NO_PAGES]
    return [_PART.sub(lambda part: things.get(part[1], "x"), path) for path in paths] + [
        *MORE_PAGES,
        f"/jobs/{things['over']}",
    ]
