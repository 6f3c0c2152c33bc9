"""List the sentences that users can see, by kind, for reading: `python -m tools.sentences [KIND]...`.

Kinds: `pages` (templates), `scripts` (of pages), `commands` (help and what the command line prints), `answers` (errors,
reasons and notifications of the servers). `{}` stands for what is filled in. `faults` knows the rules of words that a
machine can check; a test holds the list against them.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SERVERS = (
    "api_service",
    "reservation_core",
    "reservation_processor",
    "reservation_expiry",
    "availability_updater",
    "ssh_gateway",
    "standalone",
    "pod_scheduling",
    "admission_webhook",
    "gpu_admission",
    "gpu_scheduler",
)
_SEVERAL_WORDS = re.compile(r"\w\S* \S+ \S*\w")
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "critical", "getLogger"})
_NO_SENTENCE = re.compile(
    r"^[.#][\w-]|^\W*(?:SELECT|INSERT|UPDATE|DELETE|WITH|SET|LOCK|CREATE|ALTER|DROP|COPY|NOTIFY|LISTEN|TRUNCATE) "
)
_JINJA = re.compile(r"{#.*?#}|{%.*?%}", re.DOTALL)
_FILLED = re.compile(r"{{.*?}}", re.DOTALL)
_SCRIPT_TEXT = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`")
_SPOKEN = ("aria-label", "title", "placeholder", "alt", "data-question", "content", "value")
_INLINE = frozenset({"a", "abbr", "b", "code", "em", "i", "kbd", "small", "span", "strong", "time", "wbr"})
_HIDDEN = frozenset({"script", "style"})


_FAULTS = {
    r"\b[Cc]ards?\b": "say GPU",
    r"\bin (?:the )?line\b|\bthe line for\b": "say queue or waitlist",
    r"\b(?:is|are|be|being) told\b|\bnotices?\b(?! is)": "say notified, notification",
    r"\b(?:on|the|for the) record\b": "say audit log",
    r"\banew\b": "say again",
    r"\bwhom\b": "name the person or thing",
    r"\b(?:can(?:[’']t|not)?|could(?: not)?|to) be had\b": "say available or free",
    r"(?:^|[.:;] )(?:Who|Whom|Whoever|Whose|What is)\b(?![’'])(?!.*\?)": "name the thing first",
    r"\bpydantic\b|\bregexp?\b": "say it without a type or pattern",
}
_REST = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE) /|/v1/")


class Sentence(NamedTuple):
    """A text that users can see, and the line that it begins at."""

    kind: str
    place: str
    text: str


def of_python(source: str, *, with_help: bool) -> Iterator[tuple[int, str]]:
    """Literals of several words that are neither logged nor SQL, by line.

    Docstrings count where they are the help of a command (`with_help`).
    """
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            skipped.update(map(id, ast.iter_child_nodes(node)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.Call) and _called(node) in _LOGGING:
            skipped.update(map(id, ast.iter_child_nodes(node)))
        elif isinstance(node, ast.FunctionDef) and with_help and _is_command(node):
            yield node.lineno, " ".join((ast.get_docstring(node) or "").split())
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            yield node.lineno, "".join(_piece(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_command(function: ast.FunctionDef) -> bool:
    marks = (mark for mark in function.decorator_list if isinstance(mark, ast.Call))
    return any(_called(mark) in {"command", "callback"} for mark in marks)


def _piece(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "{}"


def of_template(source: str) -> Iterator[tuple[int, str]]:
    """Texts between block elements and in spoken attributes, by line."""
    plain = _FILLED.sub("{}", _JINJA.sub(lambda code: "\n" * code[0].count("\n") or " ", source))
    reader = _TemplateReader()
    reader.feed(plain)
    reader.close()
    reader.end_text()
    yield from reader.texts


class _TemplateReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[tuple[int, str]] = []
        self._line = 1
        self._text = ""
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _INLINE:
            self.end_text()
        self._hidden = tag in _HIDDEN
        self.texts += [(self.getpos()[0], said) for name, said in attrs if name in _SPOKEN and said]

    def handle_endtag(self, tag: str) -> None:
        if tag not in _INLINE:
            self.end_text()
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if not self._text.strip():
            self._line = self.getpos()[0] + len(data[: len(data) - len(data.lstrip())].splitlines()[1:])
        self._text += data

    def end_text(self) -> None:
        if self._text.strip():
            self.texts.append((self._line, self._text))
        self._text = ""


def of_script(source: str) -> Iterator[tuple[int, str]]:
    """String literals of several words, by line."""
    code = re.sub(r"^\s*(?://|\*|/\*).*$", "", source, flags=re.MULTILINE)
    for literal in _SCRIPT_TEXT.finditer(code):
        yield code.count("\n", 0, literal.start()) + 1, re.sub(r"\$\{[^}]*\}", "{}", literal[1] or literal[2] or "")


def sentences(root: Path = ROOT) -> Iterator[Sentence]:
    """Every text that users can see, in the order of kind, file and line."""
    web = root / "api_service" / "web"
    for path in sorted((web / "templates").rglob("*.html")):
        yield from _read("pages", root, path, of_template)
    for path in sorted((web / "scripts").rglob("*.js")):
        yield from _read("scripts", root, path, of_script)
    for path in sorted((root / "gpu_dev").rglob("*.py")):
        yield from _read("commands", root, path, lambda source: of_python(source, with_help=True))
    for package in SERVERS:
        for path in sorted((root / package).rglob("*.py")):
            yield from _read("answers", root, path, lambda source: of_python(source, with_help=False))


def _read(kind: str, root: Path, path: Path, texts: Callable[[str], Iterator[tuple[int, str]]]) -> Iterator[Sentence]:
    for line, text in sorted(texts(path.read_text(encoding="utf-8"))):
        said = " ".join(text.split())
        if _SEVERAL_WORDS.search(said) and not _NO_SENTENCE.match(said):
            yield Sentence(kind, f"{path.relative_to(root)}:{line}", said)


def faults(sentence: Sentence) -> Iterator[str]:
    """Words of the project's list (CONTRIBUTING) that a machine can find; paths of REST on pages and in commands."""
    for wrong, advice in _FAULTS.items():
        if found := re.search(wrong, sentence.text):
            yield f"{found[0]!r}: {advice}"
    if sentence.kind != "answers" and _REST.search(sentence.text):
        yield "a path of REST: say the command or the page"


def main(kinds: list[str]) -> None:
    """Print the sentences of the kinds, or all, and what is wrong with them."""
    for sentence in sentences():
        if not kinds or sentence.kind in kinds:
            print(f"{sentence.place}: {sentence.text}", *(f"<-- {fault}" for fault in faults(sentence)))


if __name__ == "__main__":
    main(sys.argv[1:])
