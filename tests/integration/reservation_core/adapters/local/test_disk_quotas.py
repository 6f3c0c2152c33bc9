"""Disks of the local cluster are bounded by project quotas, in a Linux of its own: this machine may have none.

User-mode Linux runs as a process of anybody. It sees this machine's files, read-only, and a file system with quotas.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("project_quotas.py")
ROOT = Path(__file__).parents[5]
_SIZE = 384 * 2**20
_MAKERS = {"ext4": ("mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"), "xfs": ("mkfs.xfs", "-q")}
_PATIENCE_S = 300
_START = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 NO_COLOR=1 PYTHONPATH="$ROOT" PYTHONDONTWRITEBYTECODE=1
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTEST_ADDOPTS="-p pytest_asyncio.plugin -p pytest_timeout"
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run
mount -t tmpfs dev /dev/shm
modules=/usr/lib/uml/modules/$(uname -r)/kernel/fs/quota
busybox insmod $modules/quota_tree.ko
busybox insmod $modules/quota_v2.ko
mount -t "$KIND" -o prjquota /dev/ubda /mnt
mkdir /mnt/tmp
cd "$ROOT"
TMPDIR=/mnt/tmp "$PYTHON" -m pytest --noconftest -p no:cacheprovider --basetemp=/mnt/cases -q "$CASES"
echo "ended with $?"
busybox halt -f
"""


@pytest.fixture(params=_MAKERS)
def linux(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """The command that starts a Linux in which `init` of the folder is the first process."""
    maker = _MAKERS[request.param]
    missing = [name for name in ("linux.uml", "busybox", maker[0]) if shutil.which(name) is None]
    if missing:
        packages = "user-mode-linux, busybox-static, e2fsprogs and xfsprogs"
        pytest.skip(f"there is no {' and no '.join(missing)}: install Debian's {packages}")
    image, start = tmp_path / "image", tmp_path / "start"
    with image.open("wb") as file:
        file.truncate(_SIZE)
    subprocess.run([*maker, image], check=True)
    variables = {"KIND": request.param, "ROOT": ROOT, "PYTHON": sys.executable, "CASES": CASES}
    start.write_text(
        _START.replace("#!/bin/sh\n", "#!/bin/sh\n" + "".join(f"{k}='{v}'\n" for k, v in variables.items()))
    )
    start.chmod(0o700)
    machine = ["mem=512M", f"ubd0={image}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={start}"]
    return ["linux.uml", *machine, "con=null", "con0=fd:0,fd:1", "quiet"]


def test_project_quotas_bound_disks(linux: list[str]) -> None:
    ended = subprocess.run(
        linux, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    assert "ended with 0" in ended.stdout, ended.stdout[-8000:]
    assert "skipped" not in ended.stdout
