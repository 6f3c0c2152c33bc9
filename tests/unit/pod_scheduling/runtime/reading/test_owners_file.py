"""The owners file: what it may say, and that a broken one changes nothing."""

from pathlib import Path

import pytest

from pod_scheduling.domain.enforcement.pod_owners import OwnerRules
from pod_scheduling.runtime.reading.owners_file import BadOwnersError, OwnersFile, read_owners
from reservation_core.runtime.settings.error import SettingsError

YAML = b"""
users:
  system:serviceaccount:ci:runner: ann@lab.org
prefixes: ["oidc:"]
namespaces:
  vision-lab: ann@lab.org
"""
TOML = b"""
prefixes = ["oidc:"]
[users]
"system:serviceaccount:ci:runner" = "ann@lab.org"
[namespaces]
vision-lab = "ann@lab.org"
"""
RULES = OwnerRules({"system:serviceaccount:ci:runner": "ann@lab.org"}, ("oidc:",), {"vision-lab": "ann@lab.org"})


def test_both_ways_to_write_it() -> None:
    assert read_owners(YAML, toml=False) == read_owners(TOML, toml=True) == RULES
    assert read_owners(b"namespaces: {lab: bob}", toml=False) == OwnerRules(namespaces={"lab": "bob"})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "must hold users"),
        (b"[]", "must hold users"),
        (b"users: [", "not YAML"),
        (b"\xff", "not YAML"),
        (b"user: {}", "user"),
        (b"users: {a: 7}", "users.a"),
        (b"users: {a: ''}", "users.a"),
        (b"users: {a: two words}", "users.a"),
        (b"prefixes: oidc", "prefixes"),
        (b"prefixes: ['']", "prefixes.0"),
        (b"namespaces: {No_Namespace: ann}", "namespaces"),
        (b"namespaces: {lab: ann, lab: bob}", "lab stands twice"),
        (b"users: {a: b}\nusers: {}", "users stands twice"),
        (b"users: !!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_what_it_can_not_say(content: bytes, told: str) -> None:
    with pytest.raises(BadOwnersError, match=told):
        read_owners(content, toml=False)


def test_it_is_taken_over_when_it_changes_and_a_broken_one_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "owners.yaml"
    told: list[bool] = []
    file = OwnersFile(path, told.append)
    with pytest.raises(SettingsError, match=r"OWNERS_FILE: .*owners.yaml: can't be read"):
        file.load()
    path.write_bytes(YAML)
    file.load()
    file.reload()
    assert (file.rules(), told) == (RULES, [True])
    for broken in (b"users: [", None):
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        for _ in range(3):
            file.reload()
        assert (file.rules(), told[-1]) == (RULES, False)
    assert told == [True, False, False]
    path.write_bytes(YAML)  # as it was before
    file.reload()
    assert (file.rules(), told) == (RULES, [True, False, False, True])
    path.write_bytes(b"namespaces: {lab: bob}")
    file.reload()
    assert file.rules() == OwnerRules(namespaces={"lab": "bob"})


def test_one_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "owners.yaml"
    path.write_bytes(YAML + b"#" * 2**20)
    with pytest.raises(SettingsError, match="more than 1048576 bytes"):
        OwnersFile(path, lambda _: None).load()
