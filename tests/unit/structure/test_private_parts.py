"""Tests reach neither into the connection of a unit of work nor into what `multiprocessing` keeps to itself."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
THE_ONE_PLACE = "tests/database/sql.py"
OTHERS = {"self", "transport"}
"""What has another `_connection` than that of a unit of work, or is that which has it."""


def reached_into(source: str) -> list[str]:
    """The private parts that a module of the tests uses, as it writes them."""
    if "_connection" not in source and "multiprocessing" not in source:
        return []
    tree = ast.parse(source)
    processes = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if (node.module or "" if isinstance(node, ast.ImportFrom) else name.name).startswith("multiprocessing")
    }
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and (_first_name(node) in processes or (node.attr == "_connection" and ast.unparse(node.value) not in OTHERS))
    ]


def _first_name(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def test_tests_use_what_is_public() -> None:
    found = {
        name: parts
        for file in (ROOT / "tests").rglob("*.py")
        if (name := file.relative_to(ROOT).as_posix()) != THE_ONE_PLACE
        and (parts := reached_into(file.read_text(encoding="utf-8")))
    }
    assert found == {}, (
        "`tests.database.sql` has statements of a test's own; `tests.programs.prepared_processes` has processes"
    )


def test_what_reaches_into_private_parts_is_found() -> None:
    source = """
import multiprocessing
from multiprocessing import forkserver
multiprocessing.current_process()._config["tempdir"] = folder
forkserver._forkserver._stop()
async def f(uow):
    await uow._connection.scalar(1)
    connection = uow.queue._connection
"""
    assert set(reached_into(source)) == {
        "multiprocessing.current_process()._config",
        "forkserver._forkserver",
        "forkserver._forkserver._stop",
        "uow._connection",
        "uow.queue._connection",
    }
