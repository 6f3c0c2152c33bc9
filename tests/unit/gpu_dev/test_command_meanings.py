"""Another word for a command is answered with the command."""

import pytest
from typer.testing import CliRunner

from gpu_dev.main import app


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("jobs",), "'list'"),
        (("ls",), "'list'?"),
        (("kill",), "'cancel'"),
        (("users", "create", "ann"), "'add'"),
        (("tokens", "add"), "'create'"),
        (("tokens", "delete"), "'revoke'"),
        (("book", "delete"), "'cancel'"),
        (("book", "edit"), "'move'"),
        (("disk", "rm"), "'delete'"),
        (("calendar",), "'book'"),
        (("whoami",), "'status'"),
        (("sync",), "'cp'"),
        (("free",), "'avail' or 'gpus'"),
        (("book", "find"), "'slots'"),
        (("notify", "kinds"), "'set'"),
        (("version",), "--version?"),
        (("docs",), "--help?"),
        (("book", "mine"), "'list'?"),
        (("token", "create"), "'tokens'?"),
        (("secret", "add"), "'set'?"),
        (("users", "delete", "ben"), "'disable'?"),
        (("nodes", "drain", "n1"), "'cordon'?"),
        (("projects", "members", "vision"), "'list'?"),
        (("projects", "show", "vision"), "'list'?"),
        (("keys", "show"), "'list'?"),
        (("drain", "n1"), "'nodes cordon'?"),
        (("quarantine", "n1/0"), "'nodes quarantine'?"),
        (("create",), "'book create' or 'disk create' or 'projects create' or 'tokens create'?"),
    ],
)
def test_a_synonym_names_the_command(typed: tuple[str, ...], meant: str) -> None:
    answer = CliRunner().invoke(app, typed)
    assert answer.exit_code == 2
    assert f"Did you mean {meant}" in " ".join(answer.output.replace("\u2502", " ").split())


@pytest.mark.parametrize("typed", ["restart", "rerun", "retry"])
def test_a_job_is_submitted_again_by_an_option(typed: str) -> None:
    said = " ".join(CliRunner().invoke(app, (typed, "x")).output.replace("\u2502", " ").split())
    assert f"No such command {typed!r}. `gpu-dev submit --again ID` submits a job again." in said


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("pods", "list"), "No such command 'list'. `gpu-dev pods` alone lists them."),
        (("nodes", "titan"), "No such command 'titan'. `gpu-dev nodes` alone lists all."),
        (("list", "train"), "Nothing may follow here: train. Did you mean `gpu-dev show train`?"),
        (("book", "list", "thesis"), "Nothing may follow here: thesis. Did you mean `gpu-dev book show thesis`?"),
        (("list", "running"), "Nothing may follow here: running. Did you mean --status running?"),
        (("gpus", "h100"), "Nothing may follow here: h100. Did you mean --type h100?"),
        (("usage", "project"), "Nothing may follow here: project. Did you mean --by project?"),
        (("status", "train"), "Nothing may follow here: train. Did you mean `gpu-dev show train`?"),
        (("top", "h100"), "Nothing may follow here: h100. Did you mean --filter h100?"),
        (("list", "Done"), "Nothing may follow here: Done. Did you mean --status succeeded?"),
        (("list", "waiting"), "Nothing may follow here: waiting. Did you mean --status queued?"),
        (("list", "all"), "Nothing may follow here: all. Did you mean --all?"),
        (("book", "list", "booked"), "Nothing may follow here: booked. Did you mean --status confirmed?"),
        (("status", "failed"), "Nothing may follow here: failed. Did you mean `gpu-dev list --status failed`?"),
        (("usage", "team"), "Nothing may follow here: team. Did you mean --by project?"),
        (("status", "done"), "Nothing may follow here: done. Did you mean `gpu-dev list --status succeeded`?"),
        (("status", "running"), "Nothing may follow here: running. Did you mean `gpu-dev list --status running`?"),
        (("gpus", "now", "please"), "Nothing may follow here: now please"),
        (("usage", "--by", "team"), "Did you mean project?"),
        (("extend", "train"), "Missing option '--by'. How much longer, such as 1h or 90m."),
        (("disk", "create", "data"), "Missing option '--size'. How much fits on it, such as 100Gi."),
        (("users", "promote", "ann"), "The role of a user stays. Add a user with another name and that role"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(typed: tuple[str, ...], said: str) -> None:
    answer = CliRunner().invoke(app, typed)
    assert answer.exit_code == 2
    assert said in " ".join(answer.output.replace("\u2502", " ").split())


@pytest.mark.parametrize("word", ["tomorrow", "mine", "Mon", "2026-11-30", "9am", "9-17", "2h", "now"])
@pytest.mark.parametrize("command", [("list",), ("status",), ("book", "list")])
def test_what_is_no_name_is_not_suggested_as_one(command: tuple[str, ...], word: str) -> None:
    answer = CliRunner().invoke(app, (*command, word))
    said = answer.output.replace("\u2502", " ")
    assert (answer.exit_code, f"Nothing may follow here: {word}" in said, f"show {word}" in said) == (2, True, False)


def test_a_slip_of_typing_is_answered_as_before() -> None:
    answer = CliRunner().invoke(app, ("users", "ad"))
    assert "Did you mean 'add'?" in answer.output


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("submit", "--gpu", "1"), "--gpus"),
        (("submit", "--gpu-count", "1"), "--gpus"),
        (("list", "--mine"), "--user"),
        (("list", "-n", "3"), "--limit"),
        (("--versoin",), "--version"),
        (("simulate", "--nodes", "2"), "--add-nodes"),
        (("--sever", "http://gpus", "list"), "--server"),
        (("submit", "--mem", "1Gi"), "--memory"),
        (("submit", "--time", "1h"), "--for"),
        (("submit", "--retry", "3"), "--retries"),
        (("book", "create", "--until", "5pm"), "--end"),
        (("book", "create", "--repeat", "weekly"), "--rrule"),
        (("disk", "create", "data", "--sise", "1Gi"), "--size"),
        (("disk", "give", "data", "--too", "bob"), "--to"),
        (("audit", "--since", "yesterday"), "--from"),
        (("audit", "--until", "now"), "--to"),
        (("audit", "--user", "ann"), "--actor"),
        (("audit", "export", "--since", "yesterday"), "--from"),
        (("queue", "--limits", "3"), "--limit"),
        (("nodes", "--outptu", "json"), "--output"),
    ],
)
def test_an_unknown_option_names_the_one_that_was_meant(typed: tuple[str, ...], meant: str) -> None:
    answer = CliRunner().invoke(app, typed)
    assert answer.exit_code == 2
    assert f"Did you mean {meant}?" in " ".join(answer.output.replace("\u2502", " ").split())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("sbatch", "submit"), ("srun", "run"), ("squeue", "queue"), ("scancel", "cancel"), ("sinfo", "nodes")],
)
def test_a_command_of_slurm_names_ours_and_how_to_install_it(typed: str, meant: str) -> None:
    answer = CliRunner().invoke(app, (typed,))
    said = " ".join(answer.output.replace("\u2502", " ").split())
    assert f"Did you mean '{meant}'? `gpu-dev slurm install` installs {typed}." in said


def test_an_argument_that_is_missing_says_what_it_is_in_one_sentence() -> None:
    said = " ".join(CliRunner().invoke(app, ("notify", "add")).output.replace("\u2502", " ").split())
    assert "Missing argument 'CHANNEL'. By which channel. Choose from: email, slack, webhook" in said


def test_an_option_that_is_an_argument_says_so() -> None:
    answer = CliRunner().invoke(app, ("disk", "resize", "data", "--size", "20Gi"))
    assert answer.exit_code == 2
    assert "No such option: --size. Write SIZE without an option name." in " ".join(
        answer.output.replace("\u2502", " ").split()
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("gpus", "--free"), "Leave it out: the command shows that by itself."),
        (("queue", "--mine"), "Leave it out: the command shows that by itself."),
        (("book", "--gpus", "1"), "`gpu-dev book create` takes it."),
        (("submit", "--gpus", "1", "--start", "9am"), "A job starts once GPUs are free. For a set time: gpu-dev book"),
        (("submit", "--minutes", "30"), "Did you mean --for?"),
        (("run", "--until", "9am"), "A job starts once GPUs are free. For a set time: gpu-dev book"),
        (("disk", "list", "--all"), "Did you mean --deleted?"),
        (("logs", "x", "--grep", "loss"), "`gpu-dev logs ID | grep TEXT` prints these lines."),
        (("usage", "--user", "ann"), "`gpu-dev usage --by user` has a line for each user."),
        (("list", "--name", "x"), "`gpu-dev show NAME` shows one job."),
        (("book", "list", "--json"), "Did you mean --output json?"),
        (("usage", "--csv"), "Did you mean --output csv?"),
        (("avail", "--gpus", "2"), "`gpu-dev book slots --gpus 2 --for 4h` finds when they are free."),
        (("simulate", "--days", "7"), "Did you mean --history?"),
        (("usage", "--month"), "Did you mean --from?"),
        (("book", "list", "--week"), "Did you mean --from?"),
        (("book", "create", "--slot", "mon 9-17"), "Did you mean --start?"),
        (("logs", "--last", "5"), "Did you mean --tail?"),
    ],
)
def test_an_option_of_another_name_is_answered(typed: tuple[str, ...], said: str) -> None:
    answer = CliRunner().invoke(app, typed, prog_name="gpu-dev")
    assert answer.exit_code == 2
    assert f". {said}" in " ".join(answer.output.replace("\u2502", " ").split())


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (("help",), "Usage: gpu-dev [OPTIONS] COMMAND"),
        (("help", "help"), "Usage: gpu-dev [OPTIONS] COMMAND"),
        (("help", "submit"), "Usage: gpu-dev submit"),
        (("help", "book", "create"), "Usage: gpu-dev book create"),
        (("book", "help"), "Usage: gpu-dev book [OPTIONS] COMMAND"),
        (("book", "help", "create"), "Usage: gpu-dev book create"),
        (("help", "run", "python", "train.py"), "Usage: gpu-dev run"),
        (("help", "submit", "--gpus", "1", "--", "true"), "Usage: gpu-dev submit"),
        (("help", "audit", "verify", "log.jsonl"), "Usage: gpu-dev audit verify"),
    ],
)
def test_help_is_a_command_too_and_runs_none(typed: tuple[str, ...], shown: str) -> None:
    answer = CliRunner().invoke(app, typed, prog_name="gpu-dev")
    assert answer.exit_code == 0
    assert shown in answer.output


@pytest.mark.parametrize(
    "typed",
    [
        ("submit", "--qqqqq"),
        ("top", "--user", "ann"),
        ("disk", "create", "data", "--as", "new"),
        ("disk", "create", "data", "--it"),
    ],
)
def test_an_option_like_no_other_suggests_none(typed: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, typed)
    assert answer.exit_code == 2
    assert "No such option: --" in answer.output
    assert "mean" not in answer.output


@pytest.mark.parametrize("typed", ["gpu-dev users create ", "gpu-dev kill ", "gpu-dev disk rm "])
def test_completing_a_line_with_a_synonym_refuses_nothing(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GPU_DEV_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    answer = CliRunner().invoke(app, (), prog_name="gpu-dev")
    assert answer.exception is None or isinstance(answer.exception, SystemExit)
    assert "Did you mean" not in answer.output
