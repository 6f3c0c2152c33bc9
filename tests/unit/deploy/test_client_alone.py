"""`gpu-dev` works where only the project's own dependencies are installed, without those of the extra `server`."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

_IMPORT_ALL = """
import pkgutil, sys, importlib

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import gpu_dev
for module in pkgutil.walk_packages(gpu_dev.__path__, "gpu_dev."):
    if not module.name.endswith(("__main__", "aws_signing")):
        importlib.import_module(module.name)
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements: list[str]) -> set[str]:
    """The distributions that come with these requirements, those of the requirements included."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonical(requirement.name)
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(text) for text in requires(requirement.name) or []]
    return found


def test_every_module_of_the_command_line_loads_without_the_server() -> None:
    present = closure(PROJECT["dependencies"])
    assert present.isdisjoint({"fastapi", "sqlalchemy", "numpy", "kubernetes"})
    blocked = {
        package
        for package, distributions in packages_distributions().items()
        if present.isdisjoint(map(canonical, distributions)) and package not in {"gpu_dev", "reservation_core"}
    }
    assert {"fastapi", "sqlalchemy", "numpy"} <= blocked
    program = f"BLOCKED = {sorted(blocked)!r}\n{_IMPORT_ALL}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


def test_a_command_of_the_server_says_what_to_install() -> None:
    program = (
        'import sys; sys.modules["sqlalchemy"] = None; sys.argv = ["gpu-dev", "up"]; '
        "from gpu_dev.main import main; sys.exit(main())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 2
    assert "in a clone of the project, pip install '.[server]'." in ran.stderr
