"""Submitting a folder of 10,000 files and 1 GiB: again with one changed file, against the first time."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring.figures import Figure
from benchmarks.start_up import standalone
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

FILES = 10_000
FOLDERS = 100
TOTAL_BYTES = 2**30
ROUNDS = 3
_SUBMIT = ("submit", "--gpus", "1", "--for", "1h", "--sync")
_DAY_S = 86_400


def measure() -> list[Figure]:
    """One first submission, and so many with one changed file each."""
    with tempfile.TemporaryDirectory() as made:
        home, folder = Path(made, "home"), Path(made, "folder")
        _fill(folder)
        try:
            with standalone(home) as (_, environment):
                environment |= {
                    "XDG_CACHE_HOME": made,
                    "GPU_DEV_TOKEN": Path(home, "admin-token").read_text(encoding="utf-8").strip(),
                    "GPU_DEV_SERVER": f"http://{environment['GPU_DEV_LISTEN']}",
                }
                first = _submit(folder, environment)
                again = []
                for number in range(ROUNDS):
                    Path(folder, "d7", f"f{number}").write_bytes(os.urandom(TOTAL_BYTES // FILES))
                    again.append(_submit(folder, environment))
        finally:
            EmbeddedPostgres(home).destroy()
    detail = f"{', '.join(f'{seconds:.2f}' for seconds in again)} s against {first:.1f} s for all {FILES} files"
    samples = [seconds / first for seconds in again]
    return [Figure("submit --sync with one changed file, against the first", "", samples, 0.1, False, detail)]


def _fill(folder: Path) -> None:
    """Files of random bytes that were changed last a day ago."""
    then = time.time() - _DAY_S
    for number in range(FOLDERS):
        below = folder / f"d{number}"
        below.mkdir(parents=True)
        for name in range(FILES // FOLDERS):
            file = below / f"f{name}"
            file.write_bytes(os.urandom(TOTAL_BYTES // FILES))
            os.utime(file, (then, then))


def _submit(folder: Path, environment: dict[str, str]) -> float:
    """The seconds of one submission. Raises RuntimeError when it fails."""
    began = time.monotonic()
    command = (sys.executable, "-m", "gpu_dev", *_SUBMIT, str(folder), "--", "true")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.monotonic() - began
