"""The Dockerfile without a container engine: programs start from what is built, as nobody, and write nothing.

Here the package is built as the Dockerfile builds it, beside the libraries of this environment. With the variable
GPU_DEV_IMAGE_BUILD all that the build stage runs is carried out in an environment of its own: that takes minutes and a
package index.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.dockerfile import carry_out, copy_of, read_dockerfile

ROOT = Path(__file__).parents[3]
DOCKERFILE = read_dockerfile(ROOT / "Dockerfile")
COMPONENTS = DOCKERFILE.components()
BUILD = DOCKERFILE.stages["build"]
WEB = DOCKERFILE.stages["web"]
PAGES = "api_service/web"
NOBODY = 65532
LISTENING = {
    "api-service",
    "reservation-processor",
    "ssh-gateway",
    "admission-webhook",
    "gpu-scheduler",
    "gpu-admission",
}
LEFT_BEHIND = re.findall(
    r"[\w-]+", next(command for command in BUILD.all("RUN") if "uninstall" in command).partition("--yes")[2]
)

# Starts modules one after the other, so that what they share is loaded once. What stays behind is not there.
_STARTER = """
import contextlib, importlib.abc, io, json, runpy, sys
root, gone, modules = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"{name} is not in the image")
sys.meta_path.insert(0, Gone())
for module in modules:
    sys.argv = [module, "--help"]
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code, (module, ended.code)
    assert "sage" in told.getvalue(), (module, told.getvalue())
    origin = sys.modules[module.partition(".")[0]].__file__
    assert origin.startswith(root), (module, origin)
    print(module)
"""


def module_of(component: str) -> str:
    """What a component's entry point runs."""
    entry = DOCKERFILE.entry(component)
    if entry == ["gpu-dev"]:
        return "gpu_dev"
    assert entry[:2] == ["python", "-m"], entry
    assert len(entry) == 3, "what a container is started with besides belongs into CMD"
    return entry[2]


def test_there_is_one_for_each_component() -> None:
    assert {*COMPONENTS} == {
        "api-service", "reservation-processor", "availability-updater", "reservation-expiry", "admission-webhook",
        "gpu-scheduler", "gpu-admission", "gpu-scheduler-check", "migrations", "gpu-dev", "ssh-gateway",
    }  # fmt: skip
    baked = json.loads((ROOT / "docker-bake.json").read_text())
    image = baked["target"]["image"]
    assert sorted(image["matrix"]["component"]) == sorted(COMPONENTS)
    assert image["args"].keys() == DOCKERFILE.arguments.keys()
    for argument, variable in (("PYTHON", "BASE_IMAGE"), ("NODE", "NODE_IMAGE")):
        assert image["args"][argument] == f"${{{variable}}}"
        assert baked["variable"][variable]["default"] == DOCKERFILE.arguments[argument]


def test_what_is_copied_is_there_and_gets_past_dockerignore() -> None:
    ignored, *admitted = (ROOT / ".dockerignore").read_text().split()
    assert ignored == "*"
    for stage in DOCKERFILE.stages.values():
        for sources, _ in stage.copied():
            for source in sources:
                assert (ROOT / source).exists(), f"{stage.name} copies {source}"
                assert any(f"!{parent}" in admitted for parent in (Path(source), *Path(source).parents))


def test_what_this_machine_built_for_the_pages_is_not_taken_for_what_the_image_builds() -> None:
    assert WEB.base == "${NODE}"
    assert f"{PAGES}/built" in (ROOT / ".dockerignore").read_text().split()
    assert f"--from=web /build/{PAGES}/built {PAGES}/built" in BUILD.all("COPY")


def test_what_the_package_is_made_of_is_copied() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = {source for sources, _ in BUILD.copied() for source in sources}
    assert {*wheel["packages"]} <= copied


@pytest.mark.parametrize("component", COMPONENTS)
def test_nobody_runs_it_on_a_base_that_can_be_given_by_its_digest(component: str) -> None:
    line = DOCKERFILE.line_of(component)
    assert line[-1].base == "${PYTHON}"
    user = DOCKERFILE.last(component, "USER")
    assert user == f"{NOBODY}:{NOBODY}"
    # Nothing is installed where programs run.
    assert not [command for stage in line for command in stage.all("RUN") if "uninstall" not in command]
    for stage in line:
        for word in ("ENV", "ARG"):
            assert not [
                instruction for instruction in stage.all(word) if re.search(r"(?i)token|password|secret", instruction)
            ]


@pytest.mark.parametrize("component", COMPONENTS)
def test_who_listens_says_whether_it_is_well(component: str) -> None:
    stage = DOCKERFILE.stages[component]
    (check,) = stage.all("HEALTHCHECK")
    assert (check != "NONE") is (component in LISTENING)
    if check == "NONE":
        assert stage.all("EXPOSE") == []
        return
    options, _, command = check.partition(" CMD ")
    assert options == "--start-period=300s"
    said = json.loads(command)
    compile(said[2], component, "exec")
    ports = stage.all("EXPOSE")[0].split()
    assert re.search(rf"https?://127\.0\.0\.1:{ports[-1]}/health", said[2])
    set_ports = [assignment.rpartition(":")[2] for line in stage.all("ENV") for assignment in line.split()]
    assert set_ports in ([], ports)


@pytest.mark.parametrize("component", COMPONENTS)
def test_its_program_is_there(component: str) -> None:
    module = module_of(component)
    if (ROOT / module).is_dir():
        module = f"{module}.__main__"
    assert importlib.util.find_spec(module) is not None


@contextlib.contextmanager
def readable_folder() -> Iterator[Path]:
    """A folder that everybody can read; pytest's own are for one user only."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-dev-images-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def as_nobody(python: str) -> list[str]:
    """What to put before a command, so that it is held to what files allow, and belongs to nobody where that may be."""
    if os.geteuid() != 0:
        return []
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    nobody = [*powerless, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for prefix in (nobody, powerless):
        # Nobody may not run a Python that lies in somebody's home, nor read its libraries there.
        with contextlib.suppress(OSError):
            command = [*prefix, python, "-c", "import fastapi"]
            if subprocess.run(command, cwd="/", check=False, capture_output=True, timeout=300).returncode == 0:
                return prefix
    return []


def start(python: str, root: Path, modules: list[str], gone: list[str], path: Path | None = None) -> list[str]:
    """Which of these modules told their help; nothing below `root` may be written, and nothing is."""
    before = {file: file.stat().st_mtime_ns for file in root.rglob("*")}
    for file in [root, *before]:
        if not file.is_symlink():
            file.chmod(file.stat().st_mode & ~0o222)
    variables = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    if path is not None:
        variables["PYTHONPATH"] = str(path)
    command = [*as_nobody(python), python, "-c", _STARTER, str(root), json.dumps(gone), json.dumps(modules)]
    try:
        done = subprocess.run(
            command, cwd=root, env=variables, capture_output=True, text=True, check=False, timeout=400
        )
        assert {file: file.stat().st_mtime_ns for file in root.rglob("*")} == before
    finally:
        for file in [root, *before]:
            if not file.is_symlink():
                file.chmod(file.stat().st_mode | 0o200)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def assert_same_files(one: Path, other: Path) -> None:
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (one, other)]
    assert names[0] == names[1]


def test_every_program_starts_from_the_package_as_it_is_built() -> None:
    """Without what is left behind, as nobody, from a tree that it can't write to."""
    modules = [module_of(component) for component in COMPONENTS if component != "gpu-scheduler-check"]
    with readable_folder() as folder:
        build, site = folder / "build", folder / "site"
        build.mkdir()
        copy_of(BUILD, ROOT, build)
        # Which git ignores, and the package has all the same.
        shutil.copy(ROOT / ".gitignore", build)
        (build / PAGES / "built").mkdir()
        (build / PAGES / "built" / "site.js").touch()
        install = next(command for command in BUILD.all("RUN") if command.endswith(" ."))
        words = install.split()
        assert words[:2] == ["/venv/bin/pip", "install"]
        subprocess.run(
            [sys.executable, "-m", "pip", *words[1:], "--quiet", "--target", str(site)],
            cwd=build,
            check=True,
            timeout=300,
        )
        for folder_of_pages in ("built", "styles", "templates"):
            assert_same_files(build / PAGES / folder_of_pages, site / PAGES / folder_of_pages)
        shutil.rmtree(build)
        # What only installs and is not a program's: its own names differ from those that are imported.
        gone = [text.replace("-", "_") for text in LEFT_BEHIND if text not in ("setuptools", "pip")]
        assert start(sys.executable, site, modules, gone, site) == modules


def test_the_command_line_alone_has_what_signs_for_aws_locked_as_in_development() -> None:
    lines = (ROOT / "requirements-dev.lock").read_text().splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if line.startswith("awscrt=="))
    end = next(number for number in range(begin, len(lines)) if not lines[number].endswith("\\\n"))
    assert (ROOT / "requirements-aws.lock").read_text() == "".join(lines[begin : end + 1]), "run `make lock`"
    users = [
        component for component in COMPONENTS if "--from=aws /aws /aws" in DOCKERFILE.stages[component].all("COPY")
    ]
    assert users == ["gpu-dev"]
    assert DOCKERFILE.stages["gpu-dev"].all("ENV") == ["PYTHONPATH=/aws"]


def test_the_check_runs_on_nothing_but_python() -> None:
    stage = DOCKERFILE.stages["gpu-scheduler-check"]
    assert DOCKERFILE.line_of("gpu-scheduler-check")[1:] == [DOCKERFILE.stages["base"]]
    with readable_folder() as folder:
        copy_of(stage, ROOT, folder)
        module = module_of("gpu-scheduler-check")
        command = [sys.executable, "-I", "-S", "-c", "import sys; sys.path[:0] = [sys.argv.pop(1)]\n" + _STARTER]
        done = subprocess.run(
            [*command, str(folder), str(folder), "[]", json.dumps([module])],
            cwd="/", capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stdout.split()) == (0, [module]), done.stderr


@pytest.mark.skipif("GPU_DEV_IMAGE_BUILD" not in os.environ, reason="GPU_DEV_IMAGE_BUILD is not set: it takes minutes")
@pytest.mark.timeout(2400)
def test_all_that_the_build_stage_runs() -> None:
    with readable_folder() as folder:
        web = folder / "web-stage"
        carry_out(WEB, ROOT, web, sys.executable)
        carry_out(BUILD, ROOT, folder, getattr(sys, "_base_executable", sys.executable), {"web": web})
        [built] = folder.glob(f"venv/lib/python3*/site-packages/{PAGES}/built")
        assert {path.name for path in built.iterdir()} >= {"LICENSES.txt", "calendar.css", "calendar.js", "site.js"}
        shutil.rmtree(web)
        venv = folder / "venv"
        site = next(venv.glob("lib/python3*/site-packages"))
        assert not [text for text in LEFT_BEHIND if (site / text.replace("-", "_")).exists()]
        modules = [module_of(component) for component in COMPONENTS if component != "gpu-scheduler-check"]
        assert start(str(venv / "bin" / "python"), venv, modules, []) == modules
        assert (venv / "bin" / "gpu-dev").exists()


@pytest.mark.skipif("GPU_DEV_IMAGE_BUILD" not in os.environ, reason="GPU_DEV_IMAGE_BUILD is not set: it takes minutes")
def test_what_signs_for_aws_is_installed_by_its_hash() -> None:
    with readable_folder() as folder:
        carry_out(DOCKERFILE.stages["aws"], ROOT, folder, sys.executable)
        program = "import sys; sys.path[:0] = [sys.argv[1]]; import awscrt; print(awscrt.__file__)"
        command = [sys.executable, "-I", "-c", program, str(folder / "aws")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert done.stdout.startswith(str(folder))
