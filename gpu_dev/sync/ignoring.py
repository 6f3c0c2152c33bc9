"""Which files of a folder are left out: what `.gitignore` says in each folder, and Git's own folder."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".gitignore"
ALWAYS = ".git"


class IgnoreRules:
    """The `.gitignore` files from the root to one folder, as Git reads them: the last pattern of the deepest decides.

    `path` is the folder's, with a slash at its end, or empty for the root.
    """

    def __init__(self, path: str, specs: "tuple[tuple[str, GitIgnoreSpec], ...]" = ()) -> None:
        self._path = path
        self._specs = specs

    def below(self, folder: Path, path: str, *, has_file: bool) -> "IgnoreRules":
        """The rules in a folder at `path`, which may have a `.gitignore`. Raises OSError."""
        if not has_file:
            return IgnoreRules(path, self._specs)
        # Loaded here: most folders have none.
        from pathspec import GitIgnoreSpec

        lines = (folder / IGNORE_FILE).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return IgnoreRules(path, (*self._specs, (path, GitIgnoreSpec.from_lines(lines))))

    def leaves_out(self, name: str, *, is_folder: bool) -> bool:
        """Whether an entry of this folder is left out."""
        if name == ALWAYS:
            return True
        full = f"{self._path}{name}/" if is_folder else f"{self._path}{name}"
        for start, spec in reversed(self._specs):
            said = spec.check_file(full[len(start) :]).include
            if said is not None:
                return said
        return False
