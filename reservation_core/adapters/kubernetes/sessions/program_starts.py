"""Starting a program by exec, which knows neither variables nor a program's number; pure.

A shell in the pod does it: it sets the terminal's size and the variables, prints its process number, by which the
program gets signals later, and becomes the program. The pod's image needs `sh`, and no more. Where neither the job nor
its image names a folder, programs start in the home folder, as with SSH: few users may write to `/`.
"""

import json
from collections.abc import Iterable

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.pods.built_pods import CONTAINER
from reservation_core.ports.sessions.pod_streams import Program, ProgramEnd

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The second one can't close the input of a program."""

LONGEST_NUMBER = 20
"""The bytes of a process number with its line break, at most."""

# Arguments: rows and columns (0 without a terminal), NAME=VALUE for each variable, `--`, the command.
_START = """[ "$1" = 0 ] || stty rows "$1" cols "$2" 2>/dev/null
echo $$
shift 2
while [ "$1" != -- ]; do export "$1"; shift; done
PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/opt/gpu-dev/bin"
[ "$PWD" != / ] || cd "${HOME:-/}" 2>/dev/null
shift
[ $# = 0 ] || exec "$@"
case ${SHELL-} in */nologin | */false) unset SHELL ;; esac
command -v "${SHELL-}" >/dev/null 2>&1 && exec "$SHELL" -l
command -v bash >/dev/null 2>&1 && exec bash -l
exec sh -l"""

# Arguments: names of signals, groups. Shells differ in `--` and `-s`; all of them take this.
_SIGNAL = """names=$1 code=0
shift
for group; do
  kill -0 "-$group" 2>/dev/null || continue
  for name in $names; do kill "-$name" "-$group" || code=1; done
done
exit $code"""


def start_command(program: Program) -> tuple[str, ...]:
    """The command that starts a program and prints its process number in a line before all else."""
    terminal = program.terminal
    size = ("0", "0") if terminal is None else (str(terminal.size.rows), str(terminal.size.columns))
    variables = [] if terminal is None else [f"TERM={terminal.kind}"]
    variables += [f"{name}={value}" for name, value in program.variables]
    return ("sh", "-c", _START, "sh", *size, *variables, "--", *program.command)


def signal_command(groups: Iterable[int], names: Iterable[str]) -> tuple[str, ...]:
    """The command that sends signals, one after another, to groups of processes; it fails for a signal that is none."""
    return ("sh", "-c", _SIGNAL, "sh", " ".join(names), *(str(group) for group in groups))


def exec_query(command: tuple[str, ...], *, stdin: bool, terminal: bool) -> Query:
    """The query of an exec of the workload's container, which refuses standard error beside a terminal."""
    streams = {"stdin": stdin, "stdout": True, "stderr": not terminal, "tty": terminal}
    return {"container": CONTAINER, **streams, "command": command}


def size_message(columns: int, rows: int) -> bytes:
    """A terminal's size for the channel RESIZE."""
    return json.dumps({"Width": columns, "Height": rows}).encode()


def read_end(status: bytes) -> ProgramEnd:
    """How a program ended, from the Status object of channel STATUS. No exit code: the cluster could not run it."""
    try:
        thing = as_mapping(json.loads(status))
    except (ValueError, RecursionError):
        thing = {}
    if thing.get("status") == "Success":
        return ProgramEnd(0)
    for cause in as_list(as_mapping(thing.get("details")).get("causes")):
        code = as_mapping(cause).get("message")
        if as_mapping(cause).get("reason") == "ExitCode" and isinstance(code, str) and code.isdecimal():
            return ProgramEnd(int(code))
    return ProgramEnd(None, str(thing.get("message") or "The cluster does not say how the program ended."))
