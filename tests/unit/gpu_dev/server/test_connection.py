"""Where the server's address and the token come from, and where the token never goes."""

import os
import stat
from pathlib import Path

import pytest

from gpu_dev.errors import NotLoggedInError, UsageError
from gpu_dev.server.connection import forget_login, login_file, resolve, resolve_job, store_login
from reservation_core.runtime.settings.environment import known_names


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment of its own, with nothing set up."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "GPU_DEV_HOME": str(tmp_path / "home")}


def test_without_anything_it_is_this_machine_without_a_token(environ: dict[str, str]) -> None:
    found = resolve(None, None, environ)
    assert (found.server, found.token) == ("http://127.0.0.1:8080", None)


def test_right_after_make_up_the_admin_token_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "admin-token").write_text("admin-secret\n")
    assert resolve(None, None, environ).token == "admin-secret"
    assert resolve("http://localhost:9999", None, environ).token == "admin-secret"


USUAL = "http://127.0.0.1:8080"
OTHER = "http://127.0.0.1:18080"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of `make up`, whose server listens at another port."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for name, text in (("admin-token", "admin-secret\n"), ("address", f"{OTHER}\n")):
        (home / name).write_text(text)
        (home / name).chmod(0o600)
    return home


@pytest.mark.parametrize("written", [OTHER, "https://localhost:18443"])
def test_the_server_of_make_up_is_found_at_another_port(written: str, environ: dict[str, str], home: Path) -> None:
    (home / "address").write_text(f"{written}\n")
    found = resolve(None, None, environ)
    assert (found.server, found.token) == (written, "admin-secret")
    (home / "address").chmod(0o664)  # others could have written it
    assert resolve(None, None, environ).server == USUAL


@pytest.mark.parametrize("written", ["", "https://evil.example", "http://127.0.0.1.example:1", "http://u:p@localhost"])
def test_a_home_leads_to_this_machine_alone(written: str, environ: dict[str, str], home: Path) -> None:
    (home / "address").write_text(written)
    assert resolve(None, None, environ).server == USUAL


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_home_that_others_can_write_to_leads_nowhere(mode: int, environ: dict[str, str], home: Path) -> None:
    home.chmod(mode)
    assert resolve(None, None, environ).server == USUAL


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_an_address_that_is_no_plain_file_is_not_read(kind: str, environ: dict[str, str], home: Path) -> None:
    address = home / "address"
    address.rename(home / "elsewhere")
    match kind:
        case "link":
            address.symlink_to(home / "elsewhere")
        case "pipe":
            os.mkfifo(address, 0o600)
        case _:
            address.mkdir(0o700)
    assert resolve(None, None, environ).server == USUAL


@pytest.mark.parametrize(("owner", "is_believed"), [(1, True), (0, False), (2, False)])
def test_a_home_of_another_user_leads_nowhere(
    owner: int, is_believed: bool, environ: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.fstat
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result([*own(file)[:4], owner, *own(file)[5:]]))
    assert resolve(None, None, environ).server == (OTHER if is_believed else USUAL)


def test_a_home_is_believed_with_its_own_token_alone(environ: dict[str, str], home: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    assert resolve(None, None, environ | {"GPU_DEV_TOKEN": "from-environment"}).server == USUAL
    assert resolve(None, tmp_path / "token", environ).server == USUAL
    job = {"GPU_DEV_JOB_ID": "job-7f3k9q2m", "GPU_DEV_JOB_TOKEN": "of-a-job"}
    _, found = resolve_job(None, environ | job) or ("", None)
    assert found is not None
    assert found.server == USUAL
    store_login(login_file(environ), OTHER, "stored", current=False)
    assert resolve(None, None, environ).token == "admin-secret"
    (home / "admin-token").unlink()
    assert resolve(None, None, environ).server == USUAL


def test_the_admin_token_never_leaves_this_machine(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "admin-token").write_text("admin-secret\n")
    for far in ("https://gpus.example", "http://127.0.0.1.example:8080", "http://localhost.example"):
        assert resolve(far, None, environ).token is None


def test_a_stored_token_goes_to_its_own_server_only(environ: dict[str, str]) -> None:
    store_login(login_file(environ), "https://gpus.example", "alices-secret")
    assert resolve(None, None, environ).server == "https://gpus.example"
    assert resolve(None, None, environ).token == "alices-secret"
    assert resolve("https://GPUS.example/", None, environ).token == "alices-secret"
    for other in ("https://evil.example", "http://gpus.example", "https://gpus.example:8443"):
        assert resolve(other, None, environ).token is None


def test_what_is_said_now_counts_more_than_what_was_stored(environ: dict[str, str], tmp_path: Path) -> None:
    store_login(login_file(environ), "https://gpus.example", "stored")
    environ["GPU_DEV_TOKEN"] = "from-environment"
    assert resolve(None, None, environ).token == "from-environment"
    (tmp_path / "token").write_text("from-file")
    assert resolve(None, tmp_path / "token", environ).token == "from-file"
    environ["GPU_DEV_SERVER"] = "http://there:1"
    assert resolve(None, None, environ).server == "http://there:1"
    assert resolve("here:2", None, environ).server == "http://here:2"


def test_the_login_file_is_private_from_its_first_byte(environ: dict[str, str]) -> None:
    path = login_file(environ)
    before = os.umask(0)
    try:
        store_login(path, "https://gpus.example", "secret")
        store_login(path, "https://other.example", "secret-2")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_login_file_that_others_can_read_is_not_used(environ: dict[str, str]) -> None:
    path = login_file(environ)
    store_login(path, "https://gpus.example", "secret")
    path.chmod(0o644)
    with pytest.raises(NotLoggedInError) as caught:
        resolve(None, None, environ)
    assert caught.value.next_command == f"chmod 600 {path}"


def test_a_damaged_login_file_says_what_to_do(environ: dict[str, str]) -> None:
    path = login_file(environ)
    store_login(path, "https://gpus.example", "secret")
    path.write_text("{")
    with pytest.raises(NotLoggedInError, match="log in again"):
        resolve(None, None, environ)


def test_logging_out_forgets_one_server(environ: dict[str, str]) -> None:
    path = login_file(environ)
    store_login(path, "https://a.example", "secret-a")
    store_login(path, "https://b.example", "secret-b")
    assert forget_login(path, "https://b.example")
    assert not forget_login(path, "https://b.example")
    assert "secret-b" not in path.read_text()
    assert resolve("https://a.example", None, environ).token == "secret-a"
    assert resolve(None, None, environ).server == "http://127.0.0.1:8080"


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://u:secret@h", "http://h?q=1", "http://h#f"])
def test_what_is_no_address_is_refused(address: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(address, None, environ)
    assert "secret" not in caught.value.detail or "password" in caught.value.detail


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "ctrl\x00"])
def test_what_is_no_token_is_refused_without_showing_it(content: str, environ: dict[str, str]) -> None:
    environ["GPU_DEV_TOKEN"] = content or " "
    with pytest.raises(UsageError, match="GPU_DEV_TOKEN") as caught:
        resolve(None, None, environ)
    assert not content or content not in caught.value.detail


def test_no_repr_shows_a_token(environ: dict[str, str]) -> None:
    environ["GPU_DEV_TOKEN"] = "very-secret"
    assert "very-secret" not in repr(resolve(None, None, environ))


@pytest.mark.parametrize(("mistyped", "meant"), [("GPU_DEV_SERVR", "SERVER"), ("GPU_DEV_TOKNE", "TOKEN")])
def test_a_mistyped_variable_is_refused_with_the_one_that_was_meant(
    environ: dict[str, str], mistyped: str, meant: str
) -> None:
    with pytest.raises(UsageError, match=f"{mistyped}. Did you mean GPU_DEV_{meant}"):
        resolve(None, None, environ | {mistyped: "x"})


def test_variables_of_servers_and_jobs_are_no_mistakes(environ: dict[str, str]) -> None:
    others = [f"GPU_DEV_{name}" for name in known_names()] + ["GPU_DEV_ANYTHING", "GPU_DEV_WEB__PUBLIC_URL"]
    assert resolve(None, None, dict.fromkeys(others, "") | environ).token is None
