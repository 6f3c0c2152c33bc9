"""`gpu-dev top` against a whole system: once without a terminal, and live on one."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

from tests.integration.gpu_dev.conftest import ROOT, System
from tests.waiting import PATIENCE_S, eventually_sync

_WITHOUT_NEWS = """
from gpu_dev.commands.gpus import top
from gpu_dev.main import main

top.EVERY_S = 1000
main()
"""
BEGIN, END = "\x1b[?1049h", "\x1b[?1049l"


def test_without_a_terminal_it_is_printed_once(system: System) -> None:
    for words in (("top",), ("top", "--once")):
        shown = system.cli(*words)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.count("no data") == shown.stdout.count("free")
        assert "no samples. Simulated." in shown.stdout
        assert "\x1b" not in shown.stdout
    found = json.loads(system.cli("top", "--sort", "node", "-o", "json").stdout)
    assert {gpu["utilisation"] for gpu in found["items"]} == {None}
    assert system.cli("top", "--filter", "nothing-like-this").stdout.endswith("No GPU matches.\n")
    assert system.cli("top", "--sort", "speed").returncode == 2


def test_keys_on_a_terminal(system: System) -> None:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_NEWS, "top"],
        env={**system.environment("alice"), "TERM": "xterm"},
        cwd=ROOT, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    shown = ""

    def shows(*texts: str) -> Callable[[], bool]:
        def found() -> bool:
            nonlocal shown
            with suppress(OSError):
                shown += os.read(master, 65_536).decode(errors="replace")
            return all(text in shown for text in texts)

        return found

    def press(keys: str, *texts: str) -> None:
        nonlocal shown
        shown = ""
        os.write(master, keys.encode())
        eventually_sync(shows(*texts))

    try:
        eventually_sync(shows(BEGIN, "By utilisation.", "no data", "q quit"))
        press("n", "By node.")
        press("r", "By node, reversed.")
        press("/nowh", "Filter: nowh_")
        press("ere\r", "0 of", 'with "nowhere"', "No GPU matches.")
        press("\x1b", "By node, reversed.", "no data")
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 80, 0, 0))

        def smaller() -> bool:
            last = shown.rpartition("\x1b[H")[2]
            return shows()() and "q quit" in last and last.count("no data") == 1

        eventually_sync(smaller)
        press("q", END)
        assert process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
