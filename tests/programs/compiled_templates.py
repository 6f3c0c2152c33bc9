"""The templates of pages, compiled once for all systems of a test session: one system compiles 2 s of CPU otherwise.

A file is taken only for the text that it was compiled from, and no session sees those of another one.
"""

import os
from functools import partial
from importlib import import_module
from pathlib import Path

FOLDER = "GPU_DEV_TESTS_TEMPLATES"
"""The variable that names the folder to processes that systems are forked from."""


def keep_compiled_templates(folder: Path) -> None:
    """In this process, and in those that systems are forked from."""
    folder.mkdir(exist_ok=True)
    os.environ[FOLDER] = str(folder)
    _keep(folder)


def keep_as_asked() -> None:
    """The same in a process that was started by one which keeps them."""
    if FOLDER in os.environ:
        _keep(Path(os.environ[FOLDER]))


def _keep(folder: Path) -> None:
    jinja2 = import_module("jinja2")
    kept = jinja2.FileSystemBytecodeCache(str(folder))
    rendering = import_module("api_service.web.rendering")
    rendering.Environment = partial(jinja2.Environment, bytecode_cache=kept)
