"""`policy set`: its words are checked as the contract checks them, and a change keeps the rules of a newer server."""

import json
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from gpu_dev.commands.operate import policy
from gpu_dev.errors import UsageError
from reservation_core.contracts.policy import RulesIn
from reservation_core.domain.policy.nouns import RuleName
from tests.unit.gpu_dev.examples import NOON, a_client

_NUMBERS = (
    "-1001",
    "-1000",
    "-1",
    "0",
    "0.5",
    "59",
    "60",
    "1000",
    "1001",
    "100000",
    "100001",
    "1048577",
    "1e10",
    "inf",
)
_TEXTS = ("1s", "59s", "1m", "90d", "unlimited", "none", "2.50EUR", "2.50 EUR", "x", "")


@pytest.mark.parametrize("name", RuleName)
@pytest.mark.parametrize("text", [*_NUMBERS, *_TEXTS])
def test_a_rule_is_taken_where_its_contract_takes_it(name: RuleName, text: str) -> None:
    try:
        _, value = policy.read_rule(f"{name}={text}")
        RulesIn.model_validate({name.value: value})
    except (UsageError, ValidationError):
        with pytest.raises(UsageError):
            policy.read_rules([f"{name}={text}"])
    else:
        assert policy.read_rules([f"{name}={text}"]) == {name.value: value}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["max_gpus=-1"], "max_gpus must be at least 0."),
        (["priority=1001"], "priority must be at most 1000."),
        (["max_gpus=4", "no_show_grace=30s"], "no_show_grace must be at least 60 s."),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        policy.read_rules(words)
    assert caught.value.detail == complaint


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_rules_that_this_client_does_not_know_stay(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {"max_gpus": 4, "max_duration": "P1Y35D", "cooldown": None, "cost_per_gpu_hour": "2.50 EUR", "newer": [7]}
    rule = {"scope": "default", "user": None, "project": None, "gpu_type": None, "rules": stored, "from_file": False}
    rule |= {"version": 1, "changed_at": NOON.isoformat(), "changed_by": "ann"}
    nobody = {"count": 0, "names": []}
    verdict: dict[str, Any] = {"scope": "default", "rules": stored, "broken_rules": {}}
    verdict |= dict.fromkeys(("users", "projects", "running", "waiting", "bookings"), nobody)
    sent: list[tuple[Any, str | None]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            sent.append((json.loads(request.content), request.headers.get("if-match")))
        return httpx.Response(200, json=verdict if request.url.query else rule, headers={"etag": '"1"'})

    monkeypatch.setattr(policy, "client_for", lambda _ctx: a_client(handler))
    ended = CliRunner().invoke(policy.app, ["set", "default", "max_gpus=none", "priority=5", *more])
    assert ended.exit_code == 0, ended.output
    kept = {"max_duration": "P1Y35D", "cost_per_gpu_hour": "2.50 EUR", "newer": [7]}
    assert sent == [({**kept, "priority": 5}, '"1"')]


@pytest.mark.parametrize(
    ("typed", "scope"),
    [
        ("default", "default"),
        ("Everybody", "default"),
        ("user:Ann", "user:ann"),
        ("gpu_type:h100,user:ann", "user:ann,gpu_type:h100"),
        ("project:vision", "project:vision"),
    ],
)
def test_scopes_are_read_as_the_server_names_them(typed: str, scope: str) -> None:
    assert policy.read_scope(typed) == scope


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ("gpu_typ:h100", "Did you mean gpu_type:h100?"),
        ("type:h100", "Did you mean gpu_type:h100?"),
        ("usr:ann,gpu:h100", "Did you mean user:ann,gpu_type:h100?"),
        ("users:ann", "Did you mean user:ann?"),
        ("defualt", "Did you mean default?"),
        ("ann", "Did you mean user:ann or gpu_type:ann?"),
        ("vision project", "Did you mean project:vision?"),
        ("project vision", "Did you mean project:vision?"),
        ("team:vision", "Did you mean project:vision?"),
        ("gpu type h100", "Did you mean gpu_type:h100?"),
        ("gpu type: h100", "Did you mean gpu_type:h100?"),
        ("user: ann, gpu type: h100", "Did you mean user:ann,gpu_type:h100?"),
        ("user=ann", "Did you mean user:ann?"),
        ("user: ann gpu_type: h100", "Did you mean user:ann,gpu_type:h100?"),
    ],
)
def test_a_mistyped_scope_is_refused_with_the_one_that_is_meant(typed: str, question: str) -> None:
    with pytest.raises(UsageError) as refused:
        policy.read_scope(typed)
    assert refused.value.detail.startswith(f"{typed!r} is not a scope. {question} Scopes are default (everybody), ")


@pytest.mark.parametrize(
    "typed", ["user", "project", "gpu type", "everybody gpu", "default project", "user project", "user: default"]
)
def test_no_name_is_meant_by_the_words_of_scopes_alone(typed: str) -> None:
    with pytest.raises(UsageError, match=f"^'{typed}' is not a scope. Scopes are default "):
        policy.read_scope(typed)


def test_oneself_is_no_scope_and_the_list_is_named() -> None:
    with pytest.raises(UsageError, match="`gpu-dev policy list` shows the rules that apply to you"):
        policy.read_scope("me")


def test_a_length_that_is_none_is_refused_with_the_words_that_a_rule_may_have() -> None:
    with pytest.raises(UsageError, match="'max_duration=forever': max_duration is a duration, `unlimited` or `none`"):
        policy.read_rule("max_duration=forever")
    with pytest.raises(UsageError, match=r"`none`\. Did you mean 14d"):
        policy.read_rule("max_duration=two weeks")


@pytest.mark.parametrize(
    "typed",
    ["", ":", "user:", "user:ann,project:vision", "user:ann,user:ben", "user:ann project:vision", "all the users"],
)
def test_what_is_like_no_scope_is_refused_with_all_forms(typed: str) -> None:
    with pytest.raises(UsageError, match=r"is not a scope\. Scopes are default"):
        policy.read_scope(typed)
