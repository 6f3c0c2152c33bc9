"""What this server itself says at an app's address. Nothing is loaded for it: the origin is the app's."""

from html import escape
from secrets import token_urlsafe

from starlette.responses import Response

_STYLE = (
    ":root{color-scheme:light dark}body{margin:15vh auto 2rem;max-width:36rem;padding:0 1rem;"
    "font:16px/1.5 system-ui,sans-serif}code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}"
)


def app_page(status: int, title: str, words: str, link: tuple[str, str] | None = None) -> Response:
    """A page with a link to another one, as address and text."""
    nonce = token_urlsafe(16)
    linked = "" if link is None else f'<p><a href="{escape(link[0])}">{escape(link[1])}</a></p>'
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><style nonce="{nonce}">{_STYLE}</style></head>'
        f"<body><main><h1>{escape(title)}</h1><p>{escape(words)}</p>{linked}</main></body></html>"
    )
    headers = {
        "Content-Security-Policy": f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return Response(text, status, media_type="text/html", headers=headers)
