"""Policy files of the command line: rules by scope, and what is wrong in words."""

from datetime import timedelta
from pathlib import Path

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs.policy_files import read_policy


def test_rules_of_each_scope(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[default]\nmax_gpus = 8\nmax_duration = "P7D"\n[user.ann.gpu_type.h100]\nmax_gpus = "unlimited"\n')
    rules = read_policy(str(file))
    assert rules.keys() == {"default", "user:ann,gpu_type:h100"}
    assert (rules["default"].max_gpus, rules["default"].max_duration) == (8, "P7D")
    assert rules["user:ann,gpu_type:h100"].max_gpus == "unlimited"


def test_seconds_are_numbers_where_the_contract_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[default]\nrelaxed_if_starts_within = [{within = 3600, lifts = ["max_gpus"]}]\n')
    [relaxed] = read_policy(str(file))["default"].relaxed_if_starts_within or []
    assert relaxed.within == timedelta(hours=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'[default]\nmax_gpus = "x"\n', "default: max_gpus must be a whole number"),
        (b"[default]\nmax_gpsu = 1\n", "default: max_gpsu is not known here; leave it out"),
        (b'[user.ann]\nmax_duration = "3h"\n', "user:ann: max_duration must be a number of seconds or an ISO 8601"),
        (b"default = 1\n", "default must be a table, such as [default]"),
        (b"[default\n", "is not TOML: Expected"),
        (b"\xff\xfe", "is no text in UTF-8"),
    ],
)
def test_what_is_wrong_is_said_without_terms_of_python(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_policy(str(file))
    assert words in refused.value.detail
    assert not any(term in refused.value.detail for term in ("codec", "enum", "$", "`"))
