"""Tokens of jobs: only those that the server made are read, for the job and attempt they were made for."""

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.sessions.job_tokens import is_job_token, job_token, read_job_token

_KEY, _OTHER = b"k" * 32, b"o" * 32
_IDS = st.from_regex(r"job-[0-9a-z]{1,32}(\.(0|[1-9][0-9]{0,3}))?", fullmatch=True)


@given(_IDS, st.integers(1, 999_999_999))
def test_a_token_is_read_as_what_it_was_made_for(job_id: str, attempt: int) -> None:
    token = job_token(_KEY, job_id, attempt)
    assert is_job_token(token)
    assert read_job_token(_KEY, token) == (job_id, attempt)
    assert read_job_token(_OTHER, token) is None


@given(_IDS, st.integers(1, 99), st.data())
def test_a_changed_token_is_refused(job_id: str, attempt: int, data: st.DataObject) -> None:
    token = job_token(_KEY, job_id, attempt)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda letter: letter != token[at]))
    assert read_job_token(_KEY, token[:at] + other + token[at + 1 :]) is None


@given(st.text(max_size=100))
def test_nonsense_is_no_token(text: str) -> None:
    assert read_job_token(_KEY, text) is None
    assert read_job_token(_KEY, f"gpudev-job.{text}") is None
