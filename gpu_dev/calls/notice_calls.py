"""Notifications over REST: targets and preferences."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls, given
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.base import Page
from gpu_dev.wire.notices import (
    NoticePreferences,
    NoticePreferencesOut,
    NoticeQueued,
    NoticeTargetCreate,
    NoticeTargetCreated,
    NoticeTargetOut,
    NoticeTargetVerify,
)

_PATH = "/v1/notifications"


class NoticeCalls(Calls):
    """Your targets and preferences of notifications."""

    def targets(self, *, user: str | None = None) -> Iterator[NoticeTargetOut]:
        """Your targets, with the result of the last notification to each; for administrators all, or of `user`."""
        return self._items(Page[NoticeTargetOut], f"{_PATH}/targets", given(user=user))

    def add(self, request: NoticeTargetCreate) -> NoticeTargetCreated:
        """Add a target; a webhook's secret is in this answer and nowhere else."""
        return self._post(NoticeTargetCreated, f"{_PATH}/targets", request)

    def verify(self, target_id: str, code: str) -> NoticeTargetOut:
        """Confirm an e-mail address with the code that was mailed to it."""
        return self._post(NoticeTargetOut, f"{_target(target_id)}/verify", NoticeTargetVerify(code=code))

    def test(self, target_id: str) -> NoticeQueued:
        """Send a test to a target."""
        return self._post(NoticeQueued, f"{_target(target_id)}/test")

    def remove(self, target_id: str) -> NoticeTargetOut:
        """Remove a target."""
        return self._change("DELETE", NoticeTargetOut, _target(target_id))

    def preferences(self) -> NoticePreferencesOut:
        """Every kind of notification with its channels."""
        return self.preferences_with_etag()[0]

    def preferences_with_etag(self) -> tuple[NoticePreferencesOut, str | None]:
        """The preferences, and the ETag to give when they are changed."""
        response = self._exchange.send("GET", f"{_PATH}/preferences")
        return read_answer(NoticePreferencesOut, response.content), response.headers.get("etag")

    def put_preferences(self, preferences: NoticePreferences, *, if_match: str | None = None) -> NoticePreferencesOut:
        """Replace the preferences; kinds left out get their default."""
        return self._change("PUT", NoticePreferencesOut, f"{_PATH}/preferences", preferences, if_match=if_match)


def _target(target_id: str) -> str:
    return f"{_PATH}/targets/{quote(target_id, safe='')}"
