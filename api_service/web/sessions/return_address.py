"""The page after a sign-in: the one that was wanted, if it is one of ours."""

from urllib.parse import quote, urlsplit

from starlette.requests import Request

_LONGEST = 500
HOME = "/now"


def sign_in_address(request: Request) -> str:
    """The sign-in page, which remembers the wanted page."""
    if request.method != "GET":
        return "/sign-in"
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/sign-in" if wanted == HOME or len(wanted) > _LONGEST else f"/sign-in?next={quote(wanted, safe='')}"


def safe_return(wanted: str | None) -> str:
    """A path here, whatever was asked for: never another host, in any of the ways that browsers read one."""
    if wanted is None or len(wanted) > _LONGEST or not wanted.startswith("/") or not wanted.isascii():
        return HOME
    if wanted.startswith(("//", "/\\")) or any(ord(letter) < 32 or letter == "\\" for letter in wanted):
        return HOME
    parts = urlsplit(wanted)
    return HOME if parts.scheme or parts.netloc or parts.path.startswith("/sign-") else wanted
