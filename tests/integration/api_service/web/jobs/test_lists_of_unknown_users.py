"""A list that is filtered by a user who does not exist says so, and who may be meant."""

import httpx
import pytest

from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

LISTS = ("/v1/jobs", "/v1/bookings", "/v1/tokens", "/v1/keys", "/v1/notifications/targets")


@pytest.mark.parametrize("path", LISTS)
async def test_administrators_read_who_may_be_meant(
    path: str, root: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    answer = await root.get(path, params={"user": "alicce"})
    assert answer.status_code == 404
    assert "There is no user 'alicce'. Did you mean alice?" in answer.json()["detail"]
    assert (await root.get(path, params={"user": "alice"})).status_code == 200
    # Other users learn nothing about a user whom they may not list.
    assert (await alice.get(path, params={"user": "bobb"})).json()["items"] == []


async def test_the_page_of_jobs_says_it_beside_its_filter(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    page = words(await (await browsing("root")).get("/jobs?user=alicce"))
    assert "There is no user 'alicce'. Did you mean alice?" in page
    assert "No job matches." in words(await (await browsing("root")).get("/jobs?user=alice"))
