"""Words about notifications: how they are chosen, and whether one is sent at the turn on the waitlist."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gpu_dev.commands.bookings import book
from gpu_dev.commands.people import notify
from gpu_dev.commands.people.notify import read_preference
from gpu_dev.errors import UsageError
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind
from tests.unit.gpu_dev.examples import a_client

CREATE = ("create", "-g", "1", "-s", "tomorrow 09:00", "-d", "1h", "--wait")
SHOW = ("show", "bkg-7f3k9q2m")
BOOKING: dict[str, Any] = {
    "id": "bkg-7f3k9q2m", "title": None, "user": "ann", "project": None, "status": "waiting",
    "reason": {"code": "waiting_for_slot", "detail": "On the waitlist."}, "gpus": 1, "gpu_type": "h100", "nodes": 1,
    "node": None, "start": "2026-03-01T09:00:00Z", "end": "2026-03-01T10:00:00Z", "duration": "PT1H",
    "created_at": "2026-02-01T09:00:00Z", "series_id": None, "allocations": [], "workload": None, "jobs": [],
    "used_at": None, "release_at": None, "offer_until": None, "waits_until": None, "auto_accept": False,
}  # fmt: skip
ME = {"name": "ann", "role": "admin", "created_at": "2026-01-01T09:00:00Z", "disabled_at": None}
TARGET = {
    "id": "ntg-1", "channel": "email", "name": None, "address": "a@example.org", "status": "ready",
    "created_at": "2026-03-01T12:00:00Z", "verified_at": None, "delivered_at": None, "failed_at": None,
    "failure": None,
}  # fmt: skip
ASKED_LATER = {
    "/v1/users/me": ME,
    "/v1/notifications/preferences": {"kinds": {"offered": ["email"]}},
    "/v1/notifications/targets": {"items": [TARGET | {"user": "ann"}], "next_cursor": None},
}


def test_what_is_right_is_read() -> None:
    assert read_preference("ended=email,slack") == (NoticeKind.ENDED, [NoticeChannel.EMAIL, NoticeChannel.SLACK])
    assert read_preference("ended=none") == (NoticeKind.ENDED, [])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("startd=email", "'startd' is no kind of notification. Did you mean started? There are: confirmed, "),
        ("ended=mail", "'mail' is no channel. Did you mean email? Channels: email, slack, webhook, or none."),
        ("ended=email,", "'' is no channel. Channels: "),
        ("ended=", "Write ended=CHANNELS. Channels: "),
        ("ended", "Write ended=CHANNELS. Channels: "),
    ],
)
def test_the_word_that_is_wrong_is_said(word: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_preference(word)
    assert refused.value.detail.startswith(said)


@pytest.mark.parametrize(("addresses", "says"), [((), True), (("bob",), True), (("ann",), False)])
def test_notifications_without_an_address_say_that_nothing_is_sent(
    addresses: tuple[str, ...], says: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "/v1/users/me": ME,
        "/v1/notifications/preferences": {"kinds": {"ended": ["email"]}},
        "/v1/notifications/targets": {"items": [TARGET | {"user": user} for user in addresses], "next_cursor": None},
    }
    monkeypatch.setattr(
        notify, "client_for", lambda _ctx: a_client(lambda request: httpx.Response(200, json=answers[request.url.path]))
    )
    answer = CliRunner().invoke(notify.app, ["show"])
    assert (
        "You have no address yet, so nothing is sent. How to add one: gpu-dev notify add -h" in answer.output
    ) == says, answer.output
    assert "add email" not in answer.output, "not every server has a mail server"


def called(
    monkeypatch: pytest.MonkeyPatch, words: Sequence[str], refused: Sequence[str] = ()
) -> tuple[Any, list[httpx.URL]]:
    """The end of `gpu-dev book`, and what it asked for; the server refuses the addresses `refused`."""
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        if request.url.path in refused:
            problem = {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": "Not with this token."}
            return httpx.Response(403, json=problem)
        return httpx.Response(200, json=ASKED_LATER.get(request.url.path, BOOKING))

    monkeypatch.setattr(book, "client_for", lambda _ctx: a_client(answer))
    return CliRunner().invoke(book.app, [*words]), asked


@pytest.mark.parametrize("words", [CREATE, SHOW])
def test_only_addresses_of_its_owner_are_read(monkeypatch: pytest.MonkeyPatch, words: Sequence[str]) -> None:
    done, asked = called(monkeypatch, words)
    assert (done.exit_code, done.stderr) == (0, "You are notified when its GPUs become free.\n"), done.exception
    assert [url.params["user"] for url in asked if url.path == "/v1/notifications/targets"] == ["ann"]


@pytest.mark.parametrize("refused", ASKED_LATER)
@pytest.mark.parametrize("words", [CREATE, SHOW])
def test_nothing_is_said_where_the_token_may_not_ask(
    monkeypatch: pytest.MonkeyPatch, words: Sequence[str], refused: str
) -> None:
    done, _ = called(monkeypatch, words, [refused])
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    assert "bkg-7f3k9q2m" in done.stdout
