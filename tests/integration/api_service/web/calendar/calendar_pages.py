"""The calendar as a browser without scripts asks for it, and what the timeline's script asks for."""

import html
import re
from typing import Any

import httpx

from tests.integration.api_service.bookings.calendars import at
from tests.integration.api_service.web.browsing import Browser

HOSTILE = "</script><script>alert('x')</script>\"'&"

# A job of bob's that runs on one card of titan's for three hours: into the week that is looked at, late in the day too.
RUNNING = """
WITH made AS (
    INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, created_at, changed_at, attempt, started_at, ends_at)
    SELECT 'job-bobs', 'job', id, 'secret job', 'running', 'running', 'x', 1, 'h100', 1, interval '3 hours', 0, '{}',
           now(), now(), 1, now(), now() + interval '3 hours' FROM users WHERE name = 'bob'
    RETURNING id
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT made.id, 1, (SELECT g.id FROM gpus g JOIN nodes n ON n.id = g.node_id WHERE n.name = 'titan' AND g.index = 3), 0,
       tstzrange(now(), now() + interval '3 hours'), true, now() FROM made
"""

GIVE_NODES_CPUS_BY_GPUS = """
UPDATE nodes SET cpu_milli = 16000 * g.n, memory_bytes = 2 ^ 36 * g.n
FROM (SELECT node_id, count(*) AS n FROM gpus GROUP BY 1) g WHERE g.node_id = id
"""


def week(**more: str) -> str:
    """The calendar from the day of the next hours on, in UTC."""
    return "/calendar?" + "&".join(f"{name}={value}" for name, value in {"from": f"{at(1):%Y-%m-%d}", **more}.items())


async def sent(browser: Browser, path: str = "/calendar/bookings", **fields: str) -> httpx.Response:
    given = {
        "gpus": "1",
        "type": "h100",
        "start": f"{at(2):%Y-%m-%dT%H:%M}",
        "length": "2h",
        "zone": "UTC",
        "key": "k1",
    }
    return await browser.send(path, page="/calendar", **{**given, **fields})


async def events(browser: Browser, **more: str) -> dict[str, Any]:
    response = await browser.client.get(week(**more).replace("/calendar?", "/calendar/events?"))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def drawn(found: dict[str, Any], kind: str = "booking") -> list[dict[str, Any]]:
    return [event for event in found["events"] if kind in event["classNames"]]


def field(page: str, name: str) -> str:
    """What a field of the page holds."""
    found = re.search(rf'name="{name}"[^>]*? value="([^"]*)"', page)
    assert found is not None, name
    return html.unescape(found[1])
