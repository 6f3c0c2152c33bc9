"""A computer with Python and `make`, and nothing of this project, on which pages of the documentation are played.

It has no network: pip finds the libraries that pages install as if they were there already.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.pages.played_page import Play
from tests.e2e.systems.system_process import ROOT
from tests.programs.ports import own_port

_OURS = ("gpu_dev", "_editable", "__editable__", "__pycache__")
_NOT_COPIED = (".*", "node_modules", "dist", "tests", "benchmarks")
_SCRIPT = "#!{python}\nimport sys\nfrom gpu_dev.main import main\nsys.exit(main())\n"


@dataclass
class Laptop:
    """Somebody's computer: `home` is their folder and where they type."""

    home: Path
    environment: dict[str, str]
    port: int = field(default_factory=own_port)

    @classmethod
    @contextmanager
    def new(cls, folder: Path) -> "Iterator[Laptop]":
        """A computer whose files lie below the folder, and are gone at the end."""
        place = folder / "laptop"
        home, programs, libraries = (place / name for name in ("home", "bin", "libraries"))
        for path in (home, programs, libraries):
            path.mkdir(parents=True)
        (programs / "python3").symlink_to(Path(sys._base_executable))  # type: ignore[attr-defined]
        for library in Path(pytest_site()).iterdir():
            if not library.name.startswith(_OURS) and library.suffix != ".pth":
                (libraries / library.name).symlink_to(library)
        made = cls(
            home,
            {
                "HOME": str(home),
                "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
                "TZ": "UTC",
                "VIRTUAL_ENV_DISABLE_PROMPT": "1",
                "LANG": "C.UTF-8",
                "TMPDIR": os.environ["TMPDIR"],
                "PYTHONPATH": str(libraries),
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_NO_INDEX": "1",
                "PIP_NO_COMPILE": "1",  # most of the package is the server's, which nobody starts here
                "PIP_NO_BUILD_ISOLATION": "0",
            },
        )
        made.environment["GPU_DEV_LISTEN"] = f"127.0.0.1:{made.port}"
        try:
            yield made
        finally:
            shutil.rmtree(place)

    def build_wheel(self) -> None:
        """Put the command line there, as an administrator hands it out."""
        words = [
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(self.home),
            str(ROOT),
        ]
        subprocess.run([sys.executable, "-m", *words], check=True)

    def clone_project(self) -> Path:
        """Put the project there, compiled as it is here."""
        project = self.home / "gpu-dev-server"
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        shutil.copy(ROOT / ".npmrc", project)
        return project

    def prepare_make(self, project: Path) -> None:
        """Let it be as if `make` had installed the libraries before."""
        base = sys._base_executable  # type: ignore[attr-defined]
        subprocess.run([base, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
        (site,) = (project / ".venv" / "lib").glob("python*/site-packages")
        (site / "project.pth").write_text(f"{project}\n")
        script = project / ".venv" / "bin" / "gpu-dev"
        script.write_text(_SCRIPT.format(python=project / ".venv" / "bin" / "python"))
        script.chmod(0o755)
        for made in (".venv/.is-created", ".venv/.runtime-is-installed", "node_modules/.is-installed"):
            (project / made).parent.mkdir(exist_ok=True)
            (project / made).touch()
        (project / "api_service/web/built").mkdir(exist_ok=True)
        (project / "api_service/web/built/LICENSES.txt").touch()

    def add_kubectl(self) -> bool:
        """Put kubectl on the PATH, from where the programs of the real cluster are; false where there is none."""
        program = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kubectl"
        if program.is_file():
            (self.home.parent / "bin" / "kubectl").symlink_to(program)
        return program.is_file()

    @contextmanager
    def terminals(self, stands_for: Mapping[str, str], secret: str = "", folder: Path | None = None) -> Iterator[Play]:
        """A page to be played there."""
        here = {"http://127.0.0.1:8080": f"http://127.0.0.1:{self.port}", "/home/ada": str(self.home), **stands_for}
        play = Play(self.environment, folder or self.home, here, secret)
        try:
            yield play
        finally:
            play.close()


def pytest_site() -> str:
    """Where the libraries of the tests are."""
    import pytest

    return str(Path(pytest.__file__).parents[1])
