"""The hook of commit messages: `area: imperative summary`, at most 72 characters. `python -m tools.subject FILE`."""

import sys
from pathlib import Path

from tools.release import SUBJECT

LONGEST = 72
_MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def fault(subject: str) -> str | None:
    """The fault of a subject; None for a good one and for those that git writes."""
    if subject.startswith(_MADE_BY_GIT):
        return None
    if SUBJECT.fullmatch(subject) is None:
        return "Begin the subject with an area: `planner: retry when the database is read-only`."
    if len(subject) > LONGEST:
        return f"The subject has {len(subject)} characters. Shorten it to {LONGEST}."
    return None


def main() -> None:
    """Check the message in the file that git names."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    found = fault(lines[0] if lines else "")
    if found is not None:
        sys.exit(f"error: {found}")


if __name__ == "__main__":
    main()
