"""A lab's week, as the guide tells it: every command of `docs/guides/running-a-lab.md` is typed, at the time it says.

The whole system runs, with the guide's settings: REST, planner, pods (as processes), expiry, notices to real webhooks.
Its time is shifted as a whole (see tests.shifted_time): what happens takes as long as it takes, and the minutes between
are left out, with a stop wherever something is due. It is played by somebody who types at once, and by a slow reader.
"""

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from tests.e2e.systems.lab import Lab, open_lab
from tests.e2e.systems.ledger import usage
from tests.e2e.systems.transcript import Examples, Step, Time, Told, Typed, transcript
from tests.waiting import PATIENCE_S, eventually_sync

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "running-a-lab.md").read_text()
# Times that people type are whole minutes: this one is not.
MORNING = datetime(2030, 1, 7, 8, 0, 37, tzinfo=UTC)
SETTINGS = dict(
    word.split("=", 1)
    for line in re.findall(r"^export (.*)$", GUIDE, re.MULTILINE)
    for word in shlex.split(line)
    if word.startswith("GPU_DEV_")
)
# Looking changes nothing, so it may be repeated until what is under way has come about.
LOOKS = {"show", "list", "waitlist", "targets", "usage", "avail", "explain", "queue", "slots"}


class Play:
    """The guide, played step by step."""

    def __init__(self, lab: Lab, played: Path, pace: timedelta) -> None:
        self.lab = lab
        self.played = played
        self.pace = pace
        self.begun: datetime | None = None
        self.examples = Examples()

    def do(self, step: Step) -> None:
        """One step; whatever it is, the ledger is in order afterwards. What was really shown is written down."""
        match step:
            case Time():
                self._note(step.line)
                self.begun = self.begun or self.lab.time.now()
                self.lab.go_to(self.begun + step.after)
            case Told():
                self._told(step)
            case Typed():
                self._type(step)
                self.lab.settle()
                self.lab.go_to(self.lab.time.now() + self.pace)
            case _:
                raise AssertionError(step)

    def _told(self, step: Told) -> None:
        self._note(f"# {step.who} is notified: {step.kind} {step.about}")
        about = self.examples.put_in(step.about)
        notices = {(who, kind) for who, kind, reservation, _ in self.lab.told() if reservation == about}
        # Nothing is under way when a step has been done: what was to be told has been.
        if (step.who, step.kind) not in notices:
            happened = self.lab.rows("SELECT at, kind, reason FROM events WHERE reservation_id = :id", id=about)
            raise AssertionError(f"{step.line}\n{step.kind} is not in {notices}; its events: {happened}")

    def _type(self, step: Typed) -> None:
        words = [self._put_in(word) for word in step.words]
        looks = not LOOKS.isdisjoint(words[:2])
        wrong: list[str] = []

        def as_shown() -> bool:
            done = self.lab.cli(step.who, *words)
            told = done.stdout + done.stderr
            refused = any(line.startswith("error:") for line in step.shown)
            missing = self.examples.learn(step.shown, told)
            wrong[:] = [f"{step.line}\n{missing}\nexit code {done.returncode}\n{told}"]
            if missing is None and (done.returncode != 0) == refused:
                self._keep_token(words, done.stdout)
                return True
            return False

        if not looks:
            assert as_shown(), wrong[0]
            self._note(wrong[0])
            return
        try:
            eventually_sync(as_shown)
        except AssertionError:
            raise AssertionError(wrong[0]) from None
        self._note(wrong[0])

    def _note(self, words: str) -> None:
        with self.played.open("a") as file:
            file.write(f"{words}\n")

    def _put_in(self, word: str) -> str:
        """With real ids, and the address where hooks are received here."""
        return self.examples.put_in(word.replace("http://127.0.0.1:9000", self.lab.receiver.url("")))

    def _keep_token(self, words: list[str], stdout: str) -> None:
        """What was made for somebody is theirs from now on."""
        if words[:2] == ["tokens", "create"]:
            self.lab.system.tokens[words[words.index("--user") + 1]] = stdout.rsplit(maxsplit=1)[-1]


def assert_usage_adds_up(lab: Lab) -> None:
    """What REST answers is what the ledger says, to the microsecond, whichever way it is summed."""
    headers = {"Authorization": f"Bearer {lab.system.tokens['root']}"}
    asked = {"from": MORNING.isoformat(), "to": lab.time.now().isoformat()}
    with httpx.Client(base_url=lab.system.url, headers=headers, trust_env=False, timeout=PATIENCE_S) as http:
        for by, column in (("user", "user_name"), ("project", "project"), ("gpu_type", "gpu_type")):
            answer = http.get("/v1/usage", params={"by": by, **asked}).raise_for_status().json()
            told = {line["key"]: _times(line) for line in answer["items"]}
            ledger = lab.wait_for(usage(lab.ask, column))
            assert told == {key: (one.held, one.used, one.held - one.used, one.wasted) for key, one in ledger.items()}
            together = [sum(column, timedelta(0)) for column in zip(*told.values(), strict=True)]
            assert list(_times(answer["total"])) == together
            csv = http.get("/v1/usage", params={"by": by, "format": "csv", **asked}).raise_for_status().text
            assert len(csv.splitlines()) >= len(told) + 1


def _times(line: dict[str, Any]) -> tuple[timedelta, ...]:
    columns = ("held_gpu_s", "used_gpu_s", "idle_gpu_s", "wasted_gpu_s")
    return tuple(timedelta(microseconds=int(Decimal(str(line[column])) * 1_000_000)) for column in columns)


@pytest.fixture
def _server_log(tmp_path: Path) -> object:
    """The system shares the process with the command line, and must not write into its output."""
    with (tmp_path / "server.log").open("w") as file:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file))
        yield
        structlog.reset_defaults()


@pytest.mark.usefixtures("_server_log")
@pytest.mark.parametrize("pace", [timedelta(0), timedelta(seconds=15)], ids=["at once", "slowly"])
def test_the_week_goes_as_the_guide_says(database_url: str, tmp_path: Path, pace: timedelta) -> None:
    with open_lab(database_url, tmp_path, MORNING, SETTINGS) as lab:
        play = Play(lab, tmp_path / "played.txt", pace)
        for step in transcript(GUIDE):
            play.do(step)
        lab.go_to(lab.time.now() + timedelta(hours=1))
        assert lab.told() == lab.to_be_told()
        assert lab.rows("SELECT id FROM reservations WHERE finished_at IS NULL") == []
        assert lab.rows("SELECT id FROM events WHERE kind = 'start_promise_missed'") == []
        assert_usage_adds_up(lab)


def test_the_guides_chat_prints_notifications() -> None:
    (script,) = re.findall(r"^python3 - <<'END'\n(.*?)^END$", GUIDE, re.MULTILINE | re.DOTALL)
    on_a_free_port = script.replace("9000), Chat).serve_forever()", "0), Chat); print(chat.server_port, flush=True)")
    on_a_free_port = on_a_free_port.replace("http.server.HTTPServer", "chat = http.server.HTTPServer")
    command = [sys.executable, "-c", f"{on_a_free_port}\nchat.handle_request()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as chat:
        assert chat.stdout is not None
        port = int(chat.stdout.readline())
        httpx.post(
            f"http://127.0.0.1:{port}/ada", json={"text": "Your job is over."}, trust_env=False, timeout=PATIENCE_S
        )
        assert chat.stdout.readline() == "ada is notified: Your job is over.\n"
