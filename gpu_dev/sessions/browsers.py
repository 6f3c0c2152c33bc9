"""The browser of this machine."""

import os
import sys
import webbrowser


def open_in_browser(address: str) -> bool:
    """Open an address in a browser with a window; false where there is none, as in a login by SSH."""
    has_windows = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_windows and webbrowser.open(address)
