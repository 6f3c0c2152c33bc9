"""The command line: the seed's options by name, as Go's pflag takes them, and what becomes of them."""

import logging
from pathlib import Path

import pytest

from gpu_admission.flags.go_flags import FlagError
from gpu_admission.flags.options import applied, read_options
from pod_scheduling.domain.placement.rankings import PlacementPolicy
from pod_scheduling.ports.extender import AssumeAt
from pod_scheduling.runtime.settings.admission import AdmissionSettings, VolcanoShape
from reservation_core.runtime.processes.log_files import HandlerLogger, LogPlaces
from reservation_core.runtime.settings.error import SettingsError


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOG_LEVEL", "GPU_DEV_LOG_LEVEL", "GPU_DEV_ADMISSION__ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def settings(*arguments: str) -> AdmissionSettings:
    return applied(read_options(arguments), AdmissionSettings())


def test_the_seeds_command_line_is_taken() -> None:
    line = "--address=127.0.0.1:3456 --v=4 --kubeconfig /etc/kubernetes/scheduler.conf --logtostderr=true"
    found = settings(*line.split())
    assert found.admission.address == "127.0.0.1:3456"
    assert found.kubernetes.kubeconfig == Path("/etc/kubernetes/scheduler.conf")
    assert found.log_level == "DEBUG"
    assert read_options(line.split()).unheeded == {}


def test_without_options_the_seeds_defaults_count() -> None:
    found = settings()
    assert (found.admission.address, found.admission.debug_address) == ("127.0.0.1:3456", "127.0.0.1:3457")
    assert (found.admission.model_label, found.admission.pool_label) == ("nvidia.com/gpu.product", "gpu-pool")
    assert (found.admission.assume_at, found.admission.volcano_shape) == (AssumeAt.AUTO, VolcanoShape.AUTO)
    assert found.log_level == "INFO"


@pytest.mark.parametrize(
    "spelling",
    [["--v=4"], ["--v", "4"], ["-v=4"], ["-v", "4"], ["-v4"], ["-v", "1", "--v=4"], ["--v", "4", "--"]],
)
def test_a_level_in_every_spelling(spelling: list[str]) -> None:
    assert read_options(spelling).level == 4


def test_switches_need_no_value_and_take_none_from_the_next_word() -> None:
    assert settings("--leader-elect").admission.leader_elect is True
    assert settings("--leader-elect=false").admission.leader_elect is False
    assert settings("--leader_elect=T").admission.leader_elect is True
    assert read_options(["--version"]).version
    assert read_options(["--version=raw"]).version
    assert not read_options(["--version=false"]).version
    assert read_options(["-hv4"]).help
    with pytest.raises(FlagError, match=r"'true' is no option.*written with ="):
        read_options(["--logtostderr", "true"])


def test_a_value_may_begin_with_a_dash_or_be_empty() -> None:
    assert settings("--pprofAddress=").admission.debug_address == ""
    assert settings("--kubeconfig=", "--master", "").kubernetes.kubeconfig is None
    assert settings("--log-dir", "-x").log_level == "INFO"
    assert read_options(["--log-dir", "-x"]).logs.folder == Path("-x")
    assert read_options(["--log-backtrace-at=", "--vmodule="]).unheeded == {}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--adress=x"], "no option --adress"),
        (["--address"], "--address needs a value: --address HOST:PORT"),
        (["-address=x"], "no option -a, as in -address=x; write --address=x"),
        (["-x"], "no option -x"),
        (["-v"], "-v needs a value"),
        (["-v", "much"], "-v must be a whole number.*'much'"),
        (["--v="], "--v must be a whole number"),
        (["serve"], "'serve' is no option"),
        (["--", "serve"], "'serve' is no option"),
        (["-"], "'-' is no option"),
        (["--logtostderr=perhaps"], "--logtostderr must be true or false; it is 'perhaps'"),
        (["--stderrthreshold=4"], "--stderrthreshold must be one of"),
        (["--log-flush-frequency", "5"], "--log-flush-frequency must be a length of time"),
        (["--log-backtrace-at=here"], "--log-backtrace-at must be FILE:LINE"),
        (["--vmodule=a"], "--vmodule must be a list"),
        (["--version=maybe"], "--version must be true, false or raw"),
    ],
)
def test_what_is_not_understood_is_named(arguments: list[str], told: str) -> None:
    with pytest.raises(FlagError, match=told):
        read_options(arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--address=x"], "--address must be host:port; it is 'x'"),
        (["--address=" + "x" * 400], "--address must be host:port"),
        (["--master=10.0.0.1"], "--master must be a URL such as https"),
        (["--master=https://user:word@10.0.0.1"], "--master must be a URL such as https"),
        (["--gpu-model-label=a b"], "--gpu-model-label must be a label's name; it is 'a b'"),
        (["--gpu-pool-label="], "--gpu-pool-label must be a label's name"),
        (["--volcano-shape=v2"], "--volcano-shape must be auto, v1.7, v1.8 or v1.10"),
        (["--assume-at=now"], "--assume-at must be auto, bind or filter"),
        (["--candidates=some"], "--candidates must be all or best"),
        (["--policy=random"], "--policy must be binpack, spread, fgd or priced"),
        (["--tls-cert=a"], "--tls-cert and --tls-key go together"),
        (["--tls-key=a"], "--tls-cert and --tls-key go together"),
    ],
)
def test_values_that_can_not_be_are_named(arguments: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        settings(*arguments)


def test_each_option_of_ours_sets_its_setting() -> None:
    found = settings(
        "--gpu-model-label=team/model", "--gpu-pool-label", "team/pool", "--volcano-shape=v1.8", "--assume-at=filter",
        "--candidates=best",
        "--policy=fgd", "--master=https://10.0.0.1:6443", "--tls-cert=a", "--tls-key=b", "--pprofAddress=[::1]:9",
    )  # fmt: skip
    rules = found.admission
    assert (rules.model_label, rules.pool_label, rules.debug_address) == ("team/model", "team/pool", "[::1]:9")
    assert (rules.volcano_shape, rules.assume_at) == (VolcanoShape.V1_8, AssumeAt.FILTER)
    assert (rules.policy, rules.tls_cert, rules.tls_key) == (PlacementPolicy.FGD, Path("a"), Path("b"))
    assert found.kubernetes.server == "https://10.0.0.1:6443"


def test_options_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_ADMISSION__ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("GPU_DEV_ADMISSION__POLICY", "spread")
    assert settings().admission.address == "127.0.0.1:1"
    found = settings("--address=127.0.0.1:2").admission
    assert (found.address, found.policy) == ("127.0.0.1:2", PlacementPolicy.SPREAD)


@pytest.mark.parametrize(
    ("variables", "arguments", "level"),
    [
        ({"LOG_LEVEL": "4"}, [], "DEBUG"),
        ({"LOG_LEVEL": "2"}, [], "INFO"),
        ({"LOG_LEVEL": "warning"}, [], "WARNING"),
        ({"LOG_LEVEL": "4"}, ["--v=0"], "INFO"),
        ({"LOG_LEVEL": "4", "GPU_DEV_LOG_LEVEL": "ERROR"}, [], "ERROR"),
        ({"GPU_DEV_LOG_LEVEL": "ERROR"}, ["-v", "5"], "DEBUG"),
        ({"LOG_LEVEL": ""}, [], "INFO"),
    ],
)
def test_the_level_of_the_log(
    variables: dict[str, str], arguments: list[str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings(*arguments).log_level == level


def test_a_level_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "loud")
    with pytest.raises(SettingsError, match="LOG_LEVEL must be a number as for --v"):
        settings()


def test_options_that_mean_nothing_here_are_taken_and_said() -> None:
    assert read_options(
        ["--vmodule=a=4,b*=2", "--log-backtrace-at=:0", "--log-flush-frequency", "1m5.5s"]
    ).unheeded == {
        "vmodule": "--v is for everything",
        "log-backtrace-at": "logs show no source lines",
        "log-flush-frequency": "each line is written at once",
    }
    assert read_options(["--logtostderr=false"]).unheeded.keys() == {"logtostderr"}
    assert read_options(["--logtostderr=false"]).logs.everything_to_stderr
    assert read_options(["--alsologtostderr"]).unheeded.keys() == {"alsologtostderr"}
    assert read_options(["--stderrthreshold=1"]).unheeded.keys() == {"stderrthreshold"}
    assert read_options(["--stderrthreshold=1", "--logtostderr=false", "--log-dir=x"]).unheeded == {}


@pytest.mark.parametrize(
    ("arguments", "on_stderr"),
    [
        ([], ["info", "warning", "error"]),
        (["--logtostderr=false"], ["error"]),
        (["--logtostderr=false", "--stderrthreshold=WARNING"], ["warning", "error"]),
        (["--logtostderr=false", "--stderrthreshold=3"], []),
        (["--logtostderr=false", "--alsologtostderr"], ["info", "warning", "error"]),
    ],
)
def test_logs_go_where_they_are_wanted(
    arguments: list[str], on_stderr: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers = read_options([f"--log-dir={tmp_path / 'logs'}", *arguments]).logs.open("gpu_admission")
    logger = HandlerLogger(handlers)
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(message)s"))
    logger.info("info")
    logger.warning("warning")
    logger.error("error")
    for handler in handlers:
        handler.close()
    assert (tmp_path / "logs" / "gpu_admission.log").read_text().split() == ["info", "warning", "error"]
    assert capsys.readouterr().err.split() == on_stderr


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="No log can be written in"):
        LogPlaces(tmp_path / "file").open("gpu_admission")
