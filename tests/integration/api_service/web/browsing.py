"""What a browser without scripts does with a page."""

import html
import re
from dataclasses import dataclass

import httpx

_TOKEN = re.compile(r'name="csrf_token" value="([0-9a-f]+)"')
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class Browser:
    """One browser with its cookies."""

    client: httpx.AsyncClient

    async def get(self, path: str, status: int = 200) -> str:
        """A page's HTML."""
        response = await self.client.get(path)
        assert response.status_code == status, (response.status_code, words(response.text))
        return response.text

    async def part(self, path: str, status: int = 200) -> str:
        """A part of a page, as a script requests it."""
        answer = await self.client.get(path, headers={"HX-Request": "true"})
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    async def send(self, path: str, page: str = "/jobs", **fields: str) -> httpx.Response:
        """Fill a form in and send it; its token comes from `page`, by default from one that every visitor may see."""
        return await self.client.post(path, data={"csrf_token": await self.token(page), **fields})

    async def token(self, page: str) -> str:
        """What this visitor's forms carry."""
        found = _TOKEN.search((await self.client.get(page)).text)
        assert found is not None
        return found[1]


def words(page: str) -> str:
    """The readable text of a page."""
    return " ".join(html.unescape(_TAG.sub(" ", page)).split())
