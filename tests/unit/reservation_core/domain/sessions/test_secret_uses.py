"""Names, paths and places of secrets in a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.model import PodSecret
from reservation_core.domain.sessions.secret_uses import SecretUse, fault_of_path, fault_of_uses, is_secret_name


@pytest.mark.parametrize("name", ["HF_TOKEN", "a", "0", "deploy-key", "a.b", "x" * 63])
def test_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "_x", "a/b", "a b", "x" * 64, "a\n", "ä", "a=b"])
def test_what_is_no_name(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("path", ["/run/secrets/token", "/a", "/home/dev/.netrc", "/developer/x", "/opt/gpu-developer"])
def test_paths(path: str) -> None:
    assert fault_of_path(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "a",
        "a/b",
        "//a",
        "/a/",
        "/a//b",
        "/a/../b",
        "/../etc",
        "/.",
        "/a/.",
        "/a b",
        "/a:b",
        "/a\n",
        "/$HOME/a",
    ],
)
def test_what_is_no_path(path: str) -> None:
    assert "absolute path" in str(fault_of_path(path))


def test_a_part_of_a_path_is_as_long_as_files_may_be() -> None:
    assert fault_of_path("/run/" + "a" * 255) is None
    assert fault_of_path("/run/" + "a" * 256) == "must have no part of more than 255 characters"


@pytest.mark.parametrize("path", ["/dev/shm/x", "/proc/self/environ", "/sys", "/opt/gpu-dev/bin/sh"])
def test_folders_that_are_not_for_secrets(path: str) -> None:
    assert "must not be in" in str(fault_of_path(path))


@given(st.text(alphabet="/.abc", max_size=12))
def test_no_path_leaves_its_folder(path: str) -> None:
    if fault_of_path(path) is None:
        assert path.startswith("/")
        assert not {"", ".", ".."} & set(path[1:].split("/"))


@pytest.mark.parametrize(
    ("uses", "fault"),
    [
        ([], None),
        ([SecretUse("a", env="A"), SecretUse("a", env="B"), SecretUse("a", path="/a")], None),
        ([SecretUse("a", path="/a"), SecretUse("b", path="/ab")], None),
        ([SecretUse("a", env="A"), SecretUse("b", env="A")], "the variable A is set twice"),
        ([SecretUse("a", env="TAKEN")], "the variable TAKEN is set twice"),
        ([SecretUse("a", path="/a"), SecretUse("b", path="/a")], "/a is the path of two secrets"),
        ([SecretUse("a", path="/a/b"), SecretUse("b", path="/a")], "/a is the path of two secrets, or a folder"),
    ],
)
def test_secrets_of_one_job(uses: list[SecretUse], fault: str | None) -> None:
    found = fault_of_uses(uses, {"TAKEN": "x"})
    assert found is None if fault is None else fault in str(found)


def test_a_value_is_not_in_the_words_for_a_secret() -> None:
    assert "hunter2" not in repr(PodSecret(SecretUse("a", env="A"), "hunter2"))
