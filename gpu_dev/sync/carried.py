"""Copy the program that gives jobs their files to a folder from which it runs in any image for the same processor.

Run as `python -m gpu_dev.sync.carried FOLDER` in an image of the server, by an init container of the job's pod. The
folder gets this Python: its loader, the libraries that it has loaded, and what the program imports.
"""

import encodings.idna  # noqa: F401 - a name of the server may need it
import os
import shutil
import ssl
import subprocess
import sys
import unicodedata  # noqa: F401 - as above
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from gpu_dev.sync import inside
from reservation_core.domain.sync.files_program import LIBRARIES, LOADER, MODULES, PYTHON, python_words

_STANDARD = Path(os.__file__).parent
_TRIED = "import sys; sys.path.append(sys.argv[1]); import gpu_dev.sync.inside, encodings.idna"


def carry(folder: Path) -> None:
    """Copy the program, and run it once. Raises OSError and CalledProcessError."""
    for library in _libraries():
        if library.name.startswith("ld-"):
            _copy(library, folder / LOADER)
            continue
        _copy(library, folder / LIBRARIES / library.name)
        for name in _other_names(library):
            (folder / LIBRARIES / name).unlink(missing_ok=True)
            (folder / LIBRARIES / name).symlink_to(library.name)
    _copy(Path(sys.executable).resolve(), folder / PYTHON)
    _copy_modules(folder)
    authorities = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")
    if authorities.is_file():
        _copy(authorities, folder / MODULES / inside.AUTHORITIES)
    subprocess.run([*python_words(str(folder)), "-c", _TRIED, str(folder / MODULES)], check=True)


def _libraries() -> Iterator[Path]:
    """The shared libraries of this process, but for Python's own modules."""
    mapped = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for path in sorted(map(Path, mapped)):
        if path.is_absolute() and ".so" in path.name and not path.is_relative_to(_STANDARD):
            yield path


def _other_names(library: Path) -> Iterator[str]:
    """Links to a library beside it: programs name it by one of them."""
    for entry in os.scandir(library.parent):
        if entry.is_symlink() and ".so" in entry.name and Path(entry.path).resolve() == library.resolve():
            yield entry.name


def _copy_modules(folder: Path) -> None:
    """The modules that are loaded now; packages of the standard library whole, as they load others later."""
    standard = folder / LIBRARIES / _STANDARD.name
    (standard / "lib-dynload").mkdir(parents=True, exist_ok=True)
    for name, module in sorted(sys.modules.items()):
        file = _file_of(module)
        if file is None:
            continue
        if name.split(".")[0] in ("gpu_dev", "reservation_core"):
            _copy(file, folder / MODULES / _place(name, file))
        elif file.parent == _STANDARD or file.parent.name == "lib-dynload":
            _copy(file, standard / file.relative_to(_STANDARD))
        elif file.is_relative_to(_STANDARD) and file.name == "__init__.py" and "." not in name:
            ignored = shutil.ignore_patterns("__pycache__", "test", "tests")
            shutil.copytree(file.parent, standard / name, ignore=ignored, dirs_exist_ok=True)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def _place(name: str, file: Path) -> str:
    """Where a module of ours is below the folder of all."""
    return f"{name.replace('.', '/')}/__init__.py" if file.name == "__init__.py" else f"{name.replace('.', '/')}.py"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(source, target)


def main() -> int:
    """Copy, or say in a line why not: it becomes the reason of the job's end."""
    try:
        carry(Path(sys.argv[1]))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"gpu-dev: The program for the job's files can't be copied: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
