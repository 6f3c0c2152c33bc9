"""The pages that people go to by the palette and by keys."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page, or an action on one. `words`: what people may call it, too; `key`: goes there after `g`."""

    address: str
    name: str
    words: str = ""
    key: str = ""
    admin: bool = False


SITE_PAGES = (
    SitePage("/now", "Now", "free gpus nodes overview home", "n"),
    SitePage("/calendar", "Calendar", "timeline availability", "c"),
    SitePage("/submit", "Submit a job", "new run start", "s"),
    SitePage("/queue", "Queue", "waiting place line", "q"),
    SitePage("/jobs", "Jobs", "list running", "j"),
    SitePage("/bookings", "Your bookings", "reservations slots", "b"),
    SitePage("/calendar#book", "Book a slot", "new reservation booking"),
    SitePage("/usage", "Usage", "gpu-hours report", "u"),
    SitePage("/simulate", "Simulate the queue", "what if waits more nodes order"),
    SitePage("/account", "Your tokens and notifications", "account sessions email slack settings", "t"),
    SitePage("/account#keys", "Your SSH keys", "account public editor"),
    SitePage("/account#secrets", "Your secrets", "account variables passwords"),
    SitePage("/account#rules", "The rules for you", "account policy quotas limits"),
    SitePage("/disks", "Your disks", "storage files data folders volumes"),
    SitePage("/shortcuts", "Keyboard shortcuts", "keys help"),
    SitePage("/admin", "Administration", "overview", "a", admin=True),
    SitePage("/admin/users", "Users", "people accounts", admin=True),
    SitePage("/admin/tokens", "Tokens of users", "access", admin=True),
    SitePage("/admin/projects", "Projects", "teams members", admin=True),
    SitePage("/admin/policy", "Policy", "rules quotas limits", admin=True),
    SitePage("/admin/maintenance", "Maintenance", "windows downtime", admin=True),
    SitePage("/admin/nodes", "Nodes", "cordon fence drain machines", "o", admin=True),
    SitePage("/admin/dead-letters", "Dead letters", "messages errors", admin=True),
    SitePage("/admin/pods", "Unknown pods", "leftover", admin=True),
    SitePage("/admin/audit", "Audit log", "record events history", admin=True),
)


def section_of(path: str) -> SitePage | None:
    """The page that an address is below, or is; `/bookings/…` is below that of your bookings."""
    below = [page for page in SITE_PAGES if f"{path}/".startswith(f"{page.address}/")]
    return max(below, key=lambda page: len(page.address), default=None)


def pages_of(*, admin: bool) -> Sequence[SitePage]:
    """The pages that a visitor may open."""
    return [page for page in SITE_PAGES if admin or not page.admin]


def pages_named(text: str, *, admin: bool) -> Sequence[SitePage]:
    """The pages of which each typed word begins a word: first names that begin like this, then other names."""
    typed = text.casefold().split()
    found = [page for page in pages_of(admin=admin) if _begin(typed, f"{page.name} {page.words}")]
    begun = " ".join(typed)
    return sorted(found, key=lambda page: (not page.name.casefold().startswith(begun), not _begin(typed, page.name)))


def keys_of(*, admin: bool) -> dict[str, str]:
    """The address that each key goes to."""
    return {page.key: page.address for page in pages_of(admin=admin) if page.key}


def _begin(typed: Sequence[str], name: str) -> bool:
    words = name.casefold().split()
    return all(any(word.startswith(part) for word in words) for part in typed)
