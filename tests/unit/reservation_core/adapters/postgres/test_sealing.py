"""Sealing: what opens what, and that nothing of it is told."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.postgres.rows import workload_document, workload_of
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing, UnreadableError, is_sealed
from reservation_core.domain.model import PodWorkload
from reservation_core.runtime.sealing_keys import ensure_key_file, sealing_of
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError

OLD, NEW = b"o" * 32, b"n" * 32
WORD = st.text(max_size=50)


@given(WORD, WORD)
def test_what_was_sealed_opens_as_the_same_with_its_key_and_for_whom_it_was(plain: str, whose: str) -> None:
    kept = Sealing([OLD]).seal(plain, whose)
    assert is_sealed(kept)
    assert len(plain) < 4 or plain not in kept
    for keys in ([OLD], [NEW, OLD]):
        assert Sealing(keys).open(kept, whose) == plain
    for sealing, other in ((Sealing([NEW]), whose), (Sealing([OLD]), whose + "x"), (PLAIN, whose)):
        with pytest.raises(UnreadableError) as told:
            sealing.open(kept, other)
        assert len(plain) < 4 or plain not in str(told.value)


def test_the_same_sealed_twice_looks_different_and_a_new_key_seals_from_now_on() -> None:
    both = Sealing([NEW, OLD])
    assert both.seal("x", "") != both.seal("x", "")
    assert Sealing([NEW]).open(both.seal("x", ""), "") == "x"


@pytest.mark.parametrize("change", [lambda kept: kept[:-4] + "AAA=", lambda kept: kept[:-8], lambda kept: kept + "?"])
def test_what_was_changed_does_not_open(change: Callable[[str], str]) -> None:
    with pytest.raises(UnreadableError, match="not what was sealed"):
        Sealing([OLD]).open(change(Sealing([OLD]).seal("variable", "ann")), "ann")


@given(st.dictionaries(WORD, WORD, max_size=3))
def test_workloads_come_back_as_they_were_with_and_without_a_key(env: dict[str, str]) -> None:
    said = PodWorkload(("true",), "image", tuple(env.items()), "/here")
    for sealing in (PLAIN, Sealing([OLD])):
        stored = workload_document(said, 7, sealing)
        assert workload_of(stored, 7, sealing) == said
        assert workload_of(workload_document(said, 7, PLAIN), 7, sealing) == said  # stored before there was a key


def test_variables_that_can_not_be_read_are_kept_as_they_are() -> None:
    said = PodWorkload(env=(("TOKEN", "word"),))
    stored = workload_document(said, 7, Sealing([OLD]))
    for user, sealing in ((7, Sealing([NEW])), (8, Sealing([OLD])), (7, PLAIN)):
        unread = workload_of(stored, user, sealing)
        assert (unread.env, unread.unread) == ((), stored["env"])
        assert workload_document(unread, user, sealing) == stored
    assert workload_of(stored, 7, Sealing([NEW, OLD])) == said


def settings(file: Path | None) -> CommonSettings:
    return CommonSettings(seal_key_file=file)


def test_keys_come_from_a_file_one_a_line(tmp_path: Path) -> None:
    assert not sealing_of(settings(None)).seals
    file = tmp_path / "keys"
    file.write_bytes(b"# the new one\n" + b"\n".join(map(base64.b64encode, (NEW, OLD))) + b"\n\n")
    assert sealing_of(settings(file)).open(Sealing([OLD]).seal("x", ""), "") == "x"
    assert Sealing([NEW]).open(sealing_of(settings(file)).seal("x", ""), "") == "x"


def test_secrets_with_keys_of_their_own_open_what_was_sealed_before_they_had_any(tmp_path: Path) -> None:
    file, own = tmp_path / "keys", tmp_path / "own"
    file.write_bytes(base64.b64encode(OLD))
    own.write_bytes(base64.b64encode(NEW))
    both = sealing_of(settings(file).model_copy(update={"secrets_key_file": own}))
    assert both.secrets.open(sealing_of(settings(file)).secrets.seal("x", ""), "") == "x"
    assert Sealing([NEW]).open(both.secrets.seal("x", ""), "") == "x"
    assert len(both.secrets.former) == 1
    assert both.former == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "1 to 100 keys"),
        (b"# only a word\n", "1 to 100 keys"),
        (b"#" * 70_000, "1 to 100 keys"),
        (base64.b64encode(OLD) + b"\nsecret-word", "key 2 is not base64 of 32 bytes"),
        (base64.b64encode(b"secret-word"), "key 1 is not base64 of 32 bytes"),
        (b"\xff\xfe", "key 1 is not base64"),
    ],
)
def test_a_file_that_holds_no_keys_is_told_without_its_words(tmp_path: Path, text: bytes, told: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(text)
    with pytest.raises(SettingsError, match=told) as problem:
        sealing_of(settings(file))
    assert "secret-word" not in str(problem.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"GPU_DEV_SEAL_KEY_FILE: .*keys can't be read: No such file"):
        sealing_of(settings(tmp_path / "keys"))


def test_a_server_of_ones_own_makes_its_key_once_and_for_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "seal-key.new").write_text("left by one that was killed")
    file = ensure_key_file(tmp_path)
    made = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert sealing_of(settings(file)).seals
    assert ensure_key_file(tmp_path).read_bytes() == made
    assert [path.name for path in tmp_path.iterdir()] == ["seal-key"]
