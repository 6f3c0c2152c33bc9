"""The settings with which the webhook enforces bookings: with what can't work it doesn't start."""

import os
from collections.abc import Callable
from pathlib import Path

import pydantic
import pytest
from structlog.testing import capture_logs

from pod_scheduling.runtime.booking_reviews import open_booking_reviewer
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from pod_scheduling.runtime.webhook_reviewers import open_reviewers
from reservation_core.runtime.settings.error import SettingsError
from tests.read_yaml import read_all_yaml

Set = Callable[..., WebhookSettings]
OWN = "https://api.example.org/v1/schedulability"


class Unheard:
    """Counts nothing."""

    def asked(self, outcome: str, seconds: float) -> None:
        """Nothing."""

    def owners_usable(self, usable: bool) -> None:
        """Nothing."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Set:
    for name in [name for name in os.environ if name.startswith("GPU_DEV_")]:
        monkeypatch.delenv(name)

    def settings(**values: str) -> WebhookSettings:
        for name, value in values.items():
            monkeypatch.setenv(f"GPU_DEV_WEBHOOK__{name}", value)
        return WebhookSettings()

    return settings


async def told(settings: WebhookSettings) -> str:
    with pytest.raises(SettingsError) as refused:
        async with open_booking_reviewer(settings, Unheard()):
            pass
    return str(refused.value)


async def test_without_enforcement_nobody_is_asked_and_nothing_is_needed(given: Set) -> None:
    async with open_reviewers(given(), Unheard()) as reviewers:
        assert list(reviewers) == ["/mutate"]
    async with open_reviewers(given(ENFORCE_BOOKINGS="true", API_URL=OWN, API_TOKEN="t"), Unheard()) as reviewers:
        assert [(path, len(asked)) for path, asked in reviewers.items()] == [("/mutate", 2), ("/enforce", 2)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("api.example.org/v1/schedulability", "must be an http or https address"),
        ("ftp://api.example.org/v1/schedulability", "must be an http or https address"),
        ("https:///v1/schedulability", "must be an http or https address"),
        ("https://api.example.org:port/v1/schedulability", "must be an http or https address"),
        ("https://ann:secret@api.example.org/v1/schedulability", "without a user"),
        ("https://api.example.org/v1/schedulability?a=b", "query"),
        ("https://api.example.org/", "API_SHAPE"),
    ],
)
async def test_addresses_that_can_not_be_asked(given: Set, url: str, expected: str) -> None:
    said = await told(given(API_URL=url, API_TOKEN="t"))
    assert expected in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("url", "shape", "asked_as"),
    [
        (OWN, "auto", "own"),
        (f"{OWN}/", "auto", "own"),
        ("http://maia/maia-api/gpu-schedulability/", "auto", "seed"),
        (OWN, "seed", "seed"),
        ("https://a/b", "seed", "seed"),
        ("https://a/b", "own", "own"),
    ],
)
async def test_addresses_that_can(given: Set, url: str, shape: str, asked_as: str) -> None:
    with capture_logs() as lines:
        async with open_booking_reviewer(given(API_URL=url, API_TOKEN="t", API_SHAPE=shape), Unheard()):
            pass
    assert [line["shape"] for line in lines if line["event"] == "bookings_enforced"] == [asked_as]


async def test_one_token_and_one_only(given: Set, tmp_path: Path) -> None:
    assert "API_URL is not set" in await told(given())
    assert "API_TOKEN or" in await told(given(API_URL=OWN))
    missing = str(tmp_path / "missing")
    assert "can't be read" in await told(given(API_TOKEN_FILE=missing))
    assert "API_TOKEN or" in await told(given(API_TOKEN="gpudev_secret"))
    assert "gpudev_secret" not in repr(given())


async def test_files_that_can_not_be_used(given: Set, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("users: [")
    assert "API_CA_FILE" in await told(given(API_URL=OWN, API_TOKEN="t", API_CA_FILE=str(tmp_path / "file")))
    settings = given(API_CA_FILE="", OWNERS_FILE=str(tmp_path / "file"))
    settings.webhook.api_ca_file = None
    assert "OWNERS_FILE" in await told(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UNBOOKED", "perhaps"), ("SILENCE", "golden"), ("API_SHAPE", "round"), ("REVIEW_WAIT_S", "0.2"),
        ("REVIEW_WAIT_S", "-1"), ("FRESH_S", "0"), ("LAST_KNOWN_S", "-1"), ("API_TIMEOUT_S", "0"), ("API_URL", ""),
        ("OWNERS_LOOK_S", "0"), ("ENFORCE_BOOKINGS", "maybe"),
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused(given: Set, name: str, value: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=name.lower()):
        given(**{name: value})


def test_the_account_that_ends_pods_keeps_their_marks(given: Set) -> None:
    manifest = Path(__file__).parents[4] / "deploy" / "rbac" / "reservation-expiry.yaml"
    accounts = [
        other_manifest
        for other_manifest in read_all_yaml(manifest.read_text())
        if other_manifest["kind"] == "ServiceAccount"
    ]
    names = {
        f"system:serviceaccount:{account['metadata']['namespace']}:{account['metadata']['name']}"
        for account in accounts
    }
    assert names == set(given().webhook.mark_keepers)
