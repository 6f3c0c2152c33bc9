"""From Slurm's options to a request: each option by its treatment, and combinations of them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.slurm.reading.options import SBATCH, SRUN, Option, Takes, Treatment
from gpu_dev.slurm.reading.requests import Asked, Reading, read_request
from gpu_dev.slurm.reading.words import read_words

ENOUGH = ["--gpus=1", "--time=10"]
HERE = {"HOME": "/home/ada", "SEED": "7"}


def read(*words: str, table: Mapping[str, Option] = SBATCH) -> Reading:
    typed = read_words(words, table)
    reading = read_request(typed.given, HERE)
    reading.refusals = [*typed.refusals, *reading.refusals]
    return reading


def asked(*words: str) -> Asked:
    reading = read(*words)
    assert not reading.refusals
    return reading.asked


def refused(*words: str) -> str:
    [remark] = read(*words).refusals
    return str(remark)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("--gpus=2", {"gpus": 2}),
        ("-G2", {"gpus": 2}),
        ("-G H100:2", {"gpus": 2, "gpu_type": "h100"}),
        ("--gpus=8 --nodes=2", {"gpus": 4, "nodes": 2}),
        ("--gpus-per-node=h100:4 -N 2", {"gpus": 4, "nodes": 2, "gpu_type": "h100"}),
        ("--gres=gpu", {"gpus": 1}),
        ("--gres=gpu:2", {"gpus": 2}),
        ("--gres=gpu:a100", {"gpus": 1, "gpu_type": "a100"}),
        ("--gres gpu:a100:2 --gpus=2", {"gpus": 2, "gpu_type": "a100"}),
        ("--gpus=1 --gpus=3", {"gpus": 3}),
        ("--gpus-per-task=2 -n 2 -N 2-2 --ntasks-per-node=1", {"gpus": 2, "nodes": 2}),
    ],
)
def test_gpus_are_on_each_node(words: str, fields: dict[str, Any]) -> None:
    reading = asked("--time=10", *words.split())
    assert {name: getattr(reading, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("words", "cpus", "memory"),
    [
        ("--gpus=1 --cpus-per-task=16 --mem=64G", 16, 64 * 2**30),
        ("--gpus=8 -N 2 -c 4 --mem=500", 4, 500 * 2**20),
        ("--gpus=8 -N 2 --cpus-per-gpu=4 --mem-per-gpu=2T", 16, 8 * 2**40),
        ("--gpus=1 -c 4 --mem-per-cpu=2GB", 4, 8 * 2**30),
        ("--gpus=1 --mem-per-cpu=2048K", None, 2 * 2**20),
        ("-c 2 --mem=1g", 2, 2**30),
        ("--gpus=1", None, None),
    ],
)
def test_cpus_and_memory_are_on_each_node(words: str, cpus: int | None, memory: int | None) -> None:
    reading = asked("--time=10", *words.split())
    assert (reading.cpus, reading.memory and int(reading.memory)) == (cpus, memory)


@pytest.mark.parametrize("words", ["", "--gpus=0", "--gres=gpu:0", "--gpus-per-node=h100:0"])
def test_a_job_that_names_no_gpus_has_none(words: str) -> None:
    reading = read("--time=10", *words.split())
    assert ((reading.asked.gpus, reading.asked.gpu_type), reading.refusals) == ((0, None), [])
    said = [] if words else ["--gpus: The job has no GPU. Ask for GPUs, as in --gpus=1."]
    assert [str(remark) for remark in reading.warnings] == said


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("--time=1-0", {"duration": timedelta(days=1)}),
        ("-J x", {"name": "x"}),
        ("-D /data", {"working_dir": "/data"}),
        ("--account=vision", {"project": "vision"}),
        ("--reservation=demo", {"booking": "demo"}),
        ("--priority=-5", {"priority": -5}),
        ("--nice", {"priority": -100}),
        ("--nice=7", {"priority": -7}),
        ("--nice=-7", {"priority": 7}),
        ("--begin=now", {}),
        ("-d afterok:job-1:job-2,after:job-3", {"after": ("ok:job-1", "ok:job-2", "started:job-3")}),
        ("-d afterany:job-1,afternotok:job-2", {"after": ("any:job-1", "failed:job-2")}),
        ("--requeue", {"requeue": True}),
        ("--no-requeue", {"requeue": False}),
        ("--requeue --no-requeue", {"requeue": False}),
        ("--no-requeue --requeue", {"requeue": True}),
        ("--nice=7 --priority=5", {"priority": 5}),
        ("--priority=5 --nice=7", {"priority": -7}),
        ("--priority=5 --nice=7 --priority=6", {"priority": 6}),
        ("--export=NONE", {"env": ()}),
        ("--export=SEED,B=1", {"env": ("SEED=7", "B=1")}),
        ("--export=A='x,y',B=\"z\"", {"env": ("A=x,y", "B=z")}),
        ("--wrap=true", {"wrap": "true"}),
        ("--parsable", {"parsable": True}),
        ("--test-only", {"test_only": True}),
        ("--wait", {"wait": True}),
        ("--quiet", {"quiet": True}),
    ],
)
def test_an_option_is_a_field(words: str, fields: dict[str, Any]) -> None:
    reading = asked(*ENOUGH, *words.split(" "))
    assert {name: getattr(reading, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpus=1", "--time: Each job has a time limit here."),
        ("--gpus=1 --time=0", "--time=0: A time limit is at least a minute and at most 90 days."),
        ("--gpus=1 --time=90-1", "at most 90 days."),
        ("--gpus=1 --time=4h", "--time=4h: This is no time limit."),
        ("--time=1 --gpus=3 --nodes=2", "Name a multiple of 2."),
        ("--time=1 --gpus=1 --gres=gpu:2", "--gpus=1, --gres=gpu:2: These options do not agree."),
        ("--time=1 --gpus=a100:1,h100:1", "Name one type at most"),
        ("--time=1 --gres=gpu:a:b:1", "--gres=gpu:h100:2."),
        ("--time=1 --gres=shard:1", "Only GPUs can be asked for"),
        ("--time=1 --nodes=2 --gpus-per-node=1 -n 4", "write --ntasks=2."),
    ],
)
def test_a_request_without_an_end_or_with_gpus_that_differ_is_refused(words: str, said: str) -> None:
    assert said in refused(*words.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes=1-4", "--nodes=1-4: Name one number of nodes."),
        ("--nodes=0", "--nodes=0: Name one number of nodes."),
        ("-n 8", "--ntasks=8: One process starts on each node (1 here)."),
        ("--ntasks-per-node=8", "write --ntasks-per-node=1."),
        ("--priority=101", "from -100 to 100"),
        ("--nice=10000", "a number up to 100"),
        ("--nice=x", "a number up to 100"),
        ("--begin=tomorrow", "gpu-dev book create"),
        ("--export=ALL", "not taken along"),
        ("--export=ALL,A=1", "not taken along"),
        ("--export=A-B", "It lists variables"),
        ("--export=A=1'x,B=2", "It lists variables"),
        ("--export=A=1,,B=2", "It lists variables"),
        ("--job-name=", "--job-name=: It is empty."),
        (
            "--array=1-9",
            "--array=1-9: Elements are numbered from 0 on, without gaps. Write 0-8 for 9 elements, and add 1",
        ),
        ("--array=0-9:2", "Elements are numbered from 0 on"),
        ("--array=1,3", "Elements are numbered from 0 on"),
        ("--array=0-10000", "It has 10001 elements"),
        ("--array=0-9%0", "It runs 0 elements at once"),
        ("-d afterok", "--dependency=afterok: Write it as afterok:job-7f3k9q2m"),
        ("-d afterok:123", "Write it as afterok:job-7f3k9q2m"),
        ("-d afterok:job-1?afterany:job-2", "Write it as afterok:job-7f3k9q2m"),
        ("-d after:job-1+5", "Write it as afterok:job-7f3k9q2m"),
        ("-d singleton", "Write it as afterok:job-7f3k9q2m"),
        ("-p gpu", "There are no partitions here."),
        ("--exclusive", "--exclusive: Whole nodes can't be asked for."),
        ("--exclusive=user", "--exclusive=user: Whole nodes can't be asked for."),
        ("--no-such", "--no-such: This option is not known."),
        ("-y", "-y: This option is not known."),
        ("--mem", "--mem: This option needs a value."),
        ("--mem=0", "--mem=0: Name an amount, as in --mem=64G."),
        ("--mem=lots", "--mem=lots: Name an amount, as in --mem=64G."),
        ("--mem=64B", "--mem=64B: Name an amount, as in --mem=64G."),
        ("--mem=64GiB", "--mem=64GiB: Name an amount, as in --mem=64G."),
        ("-c 0", "--cpus-per-task=0: It is a number of CPUs"),
        ("-c 2 --cpus-per-gpu=2", "--cpus-per-task=2, --cpus-per-gpu=2: These options exclude each other."),
        ("--gpus=0 --cpus-per-gpu=2", "--cpus-per-gpu=2: The job has no GPU."),
        ("--parsable=1", "--parsable=1: This option takes no value."),
        ("--gpus-per", "It can be --gpus-per-node or --gpus-per-task or --gpus-per-socket."),
    ],
)
def test_what_cannot_be_honoured_is_named(words: str, said: str) -> None:
    assert said in refused(*ENOUGH, *words.split())


@pytest.mark.parametrize("words", ["--mem-per-gpu=4G", "--cpus-per-gpu=4", ""])
@pytest.mark.parametrize("gpus", ["--gpus=abc", "--gres=cpu:2", "--gpus-per-node=h100:a:2"])
def test_a_number_of_gpus_that_cannot_be_read_is_one_fault(gpus: str, words: str) -> None:
    reading = read("--time=10", gpus, *words.split())
    assert [remark.about for remark in reading.refusals] == [gpus]
    assert reading.warnings == []


@pytest.mark.parametrize("table", [SBATCH, SRUN], ids=["sbatch", "srun"])
def test_every_option_is_honoured_named_in_a_warning_or_refused(table: Mapping[str, Option]) -> None:
    samples = {
        "time": "20",
        "dependency": "afterok:job-1",
        "gres": "gpu:1",
        "begin": "now",
        "export": "A=1",
        "priority": "5",
        "array": "0-9",
        "signal": "B:USR1@300",
    }
    for option in table.values():
        value = samples.get(option.name, "1")
        typed = [f"{option.flag}={value}" if option.takes is Takes.VALUE else option.flag]
        reading = read(*[word for word in ENOUGH if not word.startswith(option.flag)], *typed, table=table)
        texts = {
            Treatment.HONOURED: [],
            Treatment.PASSED_OVER: reading.warnings,
            Treatment.REFUSED: reading.refusals,
        }[option.treatment]
        assert [remark.about for remark in texts] == typed * bool(texts), option
        assert bool(texts) == (option.treatment is not Treatment.HONOURED), option
        if option.treatment is not Treatment.REFUSED:
            assert not reading.refusals, option


@pytest.mark.parametrize("table", [SBATCH, SRUN], ids=["sbatch", "srun"])
def test_letters_and_beginnings_stand_for_options(table: Mapping[str, Option]) -> None:
    letters = [option.letter for option in table.values() if option.letter]
    assert len(letters) == len({*letters})
    for option in table.values():
        beginnings = [other for other in table if other.startswith(option.name)]
        for word in [option.flag, *([f"-{option.letter}"] if option.letter else [])]:
            typed = read_words([word, *(["1"] if option.takes is Takes.VALUE else [])], table)
            assert [one.option for one in typed.given] == [option], beginnings
            assert not typed.refusals


@given(st.lists(st.text(alphabet="-=GtN:gpu,0123 '\"#xALhe\\", max_size=12), max_size=6))
def test_no_words_break_the_reading(words: list[str]) -> None:
    reading = read(*words)
    assert reading.refusals or (reading.asked.gpus >= 0 and reading.asked.duration > timedelta())


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in ("ALL", "NIL", "NONE"))
VALUES = st.text(alphabet="ab ,='\"$x:/\n", max_size=8).filter(lambda value: not {"'", '"'} <= {*value})


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_listed_variables_arrive_as_they_are_quoted(variables: dict[str, str]) -> None:
    quoted = {name: f"'{value}'" if "'" not in value else f'"{value}"' for name, value in variables.items()}
    listed = ",".join(f"{name}={value}" for name, value in quoted.items())
    assert [*asked(*ENOUGH, f"--export={listed}").env] == [f"{name}={value}" for name, value in variables.items()]


@pytest.mark.parametrize("table", [SBATCH, SRUN], ids=["sbatch", "srun"])
def test_after_warns_that_only_a_start_counts(table: Mapping[str, Option]) -> None:
    [warning] = read(*ENOUGH, "-d", "afterok:job-1,after:job-2,after:job-3", table=table).warnings
    assert warning.about == "--dependency=afterok:job-1,after:job-2,after:job-3"
    assert warning.text.startswith("`after` waits for a start.")
    for kind in ("afterok", "afterany", "afternotok"):
        assert read(*ENOUGH, f"--dependency={kind}:job-1", table=table).warnings == []


def test_variables_that_are_not_set_are_named() -> None:
    [warning] = read(*ENOUGH, "--export=ABSENT,SEED").warnings
    assert str(warning) == "ABSENT: It is not set here, so the job does not get it."
