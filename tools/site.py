"""Check that the built documentation loads nothing from another site: `python -m tools.site dist/site`.

Links to other sites are for people who click on them, and are not looked at.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_LINKS_THAT_LOAD_NOTHING = {"canonical", "next", "prev", "alternate"}


class _Loaded(HTMLParser):
    """Addresses on other sites that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(_LOADS.get(tag, "")) or ""
        if address.startswith(("http://", "https://", "//")) and given.get("rel") not in _LINKS_THAT_LOAD_NOTHING:
            self.elsewhere.append(address)
        if "mermaid" in (given.get("class") or "").split():
            self.elsewhere.append("mermaid diagrams, whose program the theme loads from unpkg.com")


def faults(site: Path) -> Iterator[str]:
    """What each page loads from elsewhere."""
    for page in sorted(site.rglob("*.html")):
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        yield from (f"{page.relative_to(site)} loads {address}" for address in loaded.elsewhere)


def main(arguments: list[str]) -> int:
    """Print the faults; returns 1 if there are any."""
    found = list(faults(Path(arguments[0])))
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
