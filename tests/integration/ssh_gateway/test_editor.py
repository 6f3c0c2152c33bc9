"""What the Remote-SSH extension of VS Code does over SSH, with a small server in place of its own."""

import asyncio
import sys

from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.integration.ssh_gateway.test_forwarding import ask, through_socks
from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S

_SERVER = """import os, socket
server = socket.create_server(("127.0.0.1", 0))
print("listeningOn==%d==" % server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"editor: " + client.makefile("rb").readline())
    client.close()
"""

# The extension opens one connection with a proxy (-D) and writes its script into a shell, `ssh -T -D PORT HOST bash`.
_SCRIPT = """
echo "running: $(uname -s) $(uname -m)"
echo "shell: $(command -v bash)"
D=$PWD/.vscode-server
mkdir -p "$D/bin"
test -f "$D/server.py" || { echo "trigger_server_download"; exit 44; }
nohup PYTHON "$D/server.py" > "$D/log" 2>&1 < /dev/null &
for _ in $(seq 200); do grep -q listeningOn "$D/log" && break; sleep 0.05; done
grep listeningOn "$D/log"
echo "end of script"
cat
""".replace("PYTHON", sys.executable)


async def test_the_sequence_of_an_editor(alice: SshClient, job: str) -> None:
    """Probe, upload, start, and a connection through the dynamic proxy to the port that was printed."""
    probe = await alice.run("-T", "box@gw", "bash", input=_SCRIPT.encode())
    assert (probe.code, b"trigger_server_download" in probe.out) == (44, True), probe.err
    script = alice.folder / "server.py"
    script.write_text(_SERVER)
    copied = await alice.run(str(script), "box@gw:.vscode-server/server.py", program="scp")
    assert copied.code == 0, copied.err

    proxy = own_port()
    process = await alice.start("-T", "-D", str(proxy), "-o", "ConnectTimeout=15", "box@gw", "bash")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_SCRIPT.encode())
    port = 0
    while (line := await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)) != b"end of script\n":
        assert line, "the shell ended"
        if line.startswith(b"listeningOn=="):
            port = int(line.split(b"==")[1])
    answers = await asyncio.gather(*(_through(proxy, port) for _ in range(8)))
    assert answers == [b"editor: hello\n"] * 8
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0


async def _through(proxy: int, port: int) -> bytes:
    opened = await through_socks(proxy, b"127.0.0.1", port)
    assert opened is not None
    return await ask(*opened)
