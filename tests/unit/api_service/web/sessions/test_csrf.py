"""What forms carry: made for one session, different each time, good for no other."""

from api_service.web.sessions import csrf


def test_a_token_is_for_its_session_alone() -> None:
    made = csrf.made_for("a secret")
    assert csrf.is_for("a secret", made)
    assert not csrf.is_for("another", made)
    assert csrf.made_for("a secret") != made


def test_what_was_not_made_here_is_refused() -> None:
    made = csrf.made_for("a secret")
    changed = made[:-1] + ("0" if made[-1] != "0" else "1")
    for given in (None, "", "0" * 96, changed, made.upper(), made + "0", made[:-1]):
        assert not csrf.is_for("a secret", given)
