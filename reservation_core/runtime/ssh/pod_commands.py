"""The commands that SSH runs in a pod. The pod's image needs `sh`, and no more."""

import sys
from functools import lru_cache
from pathlib import Path

TOOLS = "/opt/gpu-dev/bin"
"""Where programs lie that the server puts beside a workload, for images without them."""

SFTP_SERVERS = (
    f"{TOOLS}/sftp-server",
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/sftp-server",
)

# $1: the command line. The user's own programs come first.
_RUN = f"""PATH="${{PATH:-/usr/local/bin:/usr/bin:/bin}}:{TOOLS}"; export PATH
case ${{SHELL-}} in */nologin | */false) unset SHELL ;; esac
command -v "${{SHELL-}}" >/dev/null 2>&1 && exec "$SHELL" -c "$1"
command -v bash >/dev/null 2>&1 && exec bash -c "$1"
exec sh -c "$1\""""

# The arguments: the Python interpreter and the program of this server, which only local pods have.
_SFTP = f"""for server in {" ".join(SFTP_SERVERS)}; do [ -x "$server" ] && exec "$server"; done
[ -x "$1" ] && [ -r "$2" ] && exec "$1" -I "$2"
echo "gpu-dev: this job has no sftp-server. Install the package openssh-sftp-server in its image, or use scp -O." >&2
exit 127"""


def login_shell_command(line: str) -> tuple[str, ...]:
    """The command that runs a line by the user's login shell."""
    return ("sh", "-c", _RUN, "sh", line)


@lru_cache(maxsize=1)
def sftp_command() -> tuple[str, ...]:
    """The command that serves SFTP on its input and output."""
    own = Path(__file__).with_name("sftp_program.py")
    return ("sh", "-c", _SFTP, "sh", sys.executable, str(own))
