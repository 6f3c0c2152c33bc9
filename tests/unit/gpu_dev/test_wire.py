"""The classes of `gpu_dev.wire` say what the contracts say that they are made from."""

import importlib
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpu_dev.commands.operate.audit import as_document, line_of
from gpu_dev.display.output import as_data, as_json
from gpu_dev.errors import UsageError
from gpu_dev.inputs.plain_requests import plain_request
from gpu_dev.inputs.requests import make_request
from gpu_dev.server.checked_answers import contract_of
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.audit_log import ChainLineOut
from gpu_dev.wire.bookings import BookingChange, BookingCreate
from gpu_dev.wire.jobs import Job, JobSpec, JobSubmit
from gpu_dev.wire.maintenance import MaintenanceCreate
from gpu_dev.wire.notices import NoticeTargetCreate
from gpu_dev.wire.people import TokenBudget, UserCreate
from gpu_dev.wire.policy import ExplainRequest, ProjectCreate, RuleOut
from gpu_dev.wire.sign_in import KubernetesProof, OidcProof
from reservation_core.domain.statuses import JobStatus
from tests.unit.gpu_dev.examples import NOON
from tools.wire import ANSWERS, CLASSES, FOLDER, sources

ANSWER_CLASSES = [
    getattr(importlib.import_module(f"{CLASSES}.{module}"), name)
    for module, names in ANSWERS.items()
    for name in names.split()
    if name != "Page"
]
UNSENT: dict[type[msgspec.Struct], dict[str, object]] = {
    JobSpec: {
        "secrets": [],
        "disks": [],
        "after": [],
        "retries": None,
        "array": None,
        "resources": None,
        "sync": None,
        "preemptible": False,
        "min_runtime": None,
        "end_signal": None,
    },
    Job: {
        "after": [],
        "array": None,
        "element": None,
        "resources": None,
        "preemption": None,
        "end_signal": None,
        "trace_id": None,
    },
}
_PLAIN = {
    str: st.text(),
    int: st.integers(),
    float: st.integers(0, 2**20).map(lambda eighths: eighths / 8),
    bool: st.booleans(),
    NoneType: st.none(),
    Decimal: st.integers(0, 10**9).map(lambda millionths: Decimal(millionths).scaleb(-6)),
    timedelta: st.integers(0, 364 * 86_400).map(lambda seconds: timedelta(seconds=seconds)),
    datetime: st.datetimes(NOON.replace(tzinfo=None)).map(lambda at: at.replace(microsecond=417_000, tzinfo=UTC)),
    Any: st.none() | st.integers() | st.text(),
}
_OTHERS = {
    # Texts whose contracts know more of them.
    ("BelongingOut", "status"): st.sampled_from(JobStatus),
    **dict.fromkeys((("ChainLineOut", "previous"), ("ChainLineOut", "digest")), st.none() | st.just("a" * 64)),
    ("MissingEventOut", "content"): st.just("0" * 64),
    ("RulesIn", Any): st.none() | st.just("unlimited"),
}


def values(of: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, parts = get_origin(of), get_args(of)
    if of in _PLAIN:
        return _PLAIN[of]
    if origin in (Union, UnionType):
        return st.one_of(*map(values, parts))
    if origin is Annotated:
        bounds = parts[1]
        return st.integers(bounds.ge, bounds.le) if parts[0] is int else st.from_regex(bounds.pattern, fullmatch=True)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is list:
        return st.lists(values(parts[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(values(parts[0]), values(parts[1]), max_size=2)
    if issubclass(of, Enum):
        return st.sampled_from(of)
    return answers(of)


@cache
def answers(model: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Answers of a class; one strategy for it, as hypothesis looks through each new one anew."""
    name = model.__name__
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(model):
        known = _OTHERS.keys() & {(name, field.name), (name, field.type)}
        fields[field.name] = _OTHERS[known.pop()] if known else values(field.type)
    return st.builds(model, **fields)


def as_contract(value: Any) -> Any:
    """The same in the contracts' models, as a server has it."""
    if isinstance(value, list):
        return [as_contract(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: as_contract(getattr(value, name)) for name in value.__struct_fields__}
    return contract_of(type(value)).model_construct(**fields)


@pytest.mark.parametrize("name", sources())
def test_a_module_is_current(name: str) -> None:
    assert (FOLDER / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8") == sources()[name], (
        "run `make reference`"
    )


def test_no_module_is_left_over() -> None:
    written = {path.relative_to(FOLDER).with_suffix("").as_posix().replace("/", ".") for path in FOLDER.rglob("*.py")}
    assert {name for name in written if name.rpartition(".")[2] != "__init__"} == set(sources())


@given(st.data())
@pytest.mark.parametrize("model", ANSWER_CLASSES)
def test_an_answer_is_read_and_shown_as_its_contract_does(model: type[msgspec.Struct], data: st.DataObject) -> None:
    answer = data.draw(answers(model))
    sent = as_contract(answer)
    if model is not ChainLineOut:  # whose times are exact; `audit export` writes its contract
        # What a job names none of is left out, as before there were any.
        assert as_data(answer) == UNSENT.get(model, {}) | sent.model_dump(mode="json")
    assert read_answer(model, sent.model_dump_json()) == answer


@given(answers(ChainLineOut))
def test_a_line_of_the_audit_log_is_exported_as_its_contract_writes_it(sent: ChainLineOut) -> None:
    line = line_of(sent)
    written = contract_of(ChainLineOut).model_validate(line, from_attributes=True).model_dump_json()
    assert as_json(as_document(line)) == as_json(json.loads(written))


def test_rules_of_more_than_a_year_are_shown_as_the_server_sends_them() -> None:
    relaxed = [{"within": "P1Y1D", "lifts": ["max_duration"]}]
    rules = {"max_gpus": 4, "max_duration": "P1Y35D", "min_notice": "unlimited", "relaxed_if_starts_within": relaxed}
    fields: dict[str, Any] = {"scope": "default", "user": None, "project": None, "gpu_type": None, "from_file": False}
    sent = contract_of(RuleOut).model_validate(
        fields | {"rules": rules, "version": 1, "changed_at": NOON, "changed_by": "ann"}
    )
    read = read_answer(RuleOut, sent.model_dump_json())
    assert as_data(read) == sent.model_dump(mode="json")
    assert as_data(read.rules)["max_duration"] == "P1Y35D"


TEXTS = ["", "x", "a b", "a\nb", "\x00", "H100", "h100", "/data", "data", "x" * 300, "\u202e", "é", None]
TIMES = ["2030-01-31T10:00", "2030-01-31T10:00:00Z", "2030-01-31T10:00:30Z", "2030-03-31T02:30", "x"]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
VALUES: dict[str, list[Any]] = {
    "gpus": [-1, 0, 1, 64, 65],
    "nodes": [0, 1, 256, 257],
    "priority": [-101, -100, 100, 101],
    "duration": [timedelta(0), timedelta(seconds=1.5), timedelta(seconds=90), 90 * DAY, 91 * DAY, -DAY],
    "start": TIMES,
    "time_zone": ["Europe/Stockholm", "Nowhere", ""],
    "wait": [False, True],
    "auto_accept": [False, True],
    "inactivity": [timedelta(seconds=59), timedelta(seconds=90.5), 90 * DAY, 91 * DAY],
    "recurrence": [
        *("FREQ=DAILY;COUNT=3", "FREQ=DAILY", "FREQ=HOURLY;COUNT=3", "FREQ=DAILY;COUNT=367", "x", "", None),
        *({"rrule": "FREQ=WEEKLY;BYDAY=MO;COUNT=8", "on_conflict": how} for how in ("skip", "fail", "x")),
        {"rrule": "FREQ=DAILY;UNTIL=20290101"},
    ],
    "workload": [
        *({"command": ["x", text]} for text in TEXTS),
        *({"command": [text]} for text in TEXTS),
        *({"env": {name: "v"}} for name in ("A", "1", "GPU_DEV_X", "NNODES", "A=B", "a" * 129)),
        *({"env": {"A": text}} for text in TEXTS),
        *({"image": text} for text in TEXTS),
        *({"working_dir": text} for text in TEXTS),
    ],
    "after": [
        *([{"job": job}] for job in ("job-a1", "job-a1.3", "job-a1\n", "x")),
        *([{"job": "job-a1", "when": when}] for when in ("ended", "x", None)),
        *([{"job": "job-a1"}, {"job": job}] for job in ("job-a1", "job-a2")),
    ],
    "retries": [
        {"max": 1},
        {"max": 0},
        {"max": 100, "on": ["node_lost"]},
        {"max": 1, "on": []},
        {"max": 1, "on": ["x"]},
    ],
    "preemptible": [False, True, 1],
    "min_runtime": [timedelta(minutes=1)],
    "end_signal": [
        *({"signal": name} for name in ("USR1", "KILL", "x")),
        *({"signal": "USR1", "before": lead} for lead in (timedelta(0), HOUR, HOUR * 2, timedelta(seconds=0.5), None)),
    ],
    "resources": [
        {},
        *({"cpus": cpus} for cpus in (0, 0.5, 4, 0.0005, 0.1234, 1e5, float("nan"), True, "4", None)),
        *({size: asked} for size in ("memory", "shm") for asked in (0, 2**20, 2**30, 2**60, "1Gi", True)),
        *({"memory": 2**30, "shm": shm} for shm in (2**20, 2**30, 2**31)),
    ],
    "disks": [
        *([{"name": name}] for name in ("data", "home", "Data", "")),
        *([{"name": "data", "path": path}] for path in ("/mnt", "mnt", "/", "/proc/x", "/a/../b", "/a\n", None)),
        *(
            [{"name": "data"}, other]
            for other in ({"name": "data"}, {"name": "b", "path": "/disks/data/b"}, {"name": "b"})
        ),
        [{"name": "data", "read_only": True}],
    ],
    "secrets": [
        *([{"name": "KEY", "env": env}] for env in ("KEY", "1", "GPU_DEV_X", "", "A=B")),
        *([{"name": "KEY", "path": path}] for path in ("/run/key", "key", "/", "/a/../b", "/proc/x")),
        [{"name": "KEY"}],
        [{"name": "KEY", "env": "A", "path": "/a"}],
        *([{"name": "KEY", "env": "A"}, {"name": "B", "env": env}] for env in ("A", "B")),
        [{"name": "KEY", "path": "/a"}, {"name": "B", "path": "/a/b"}],
    ],
    **dict.fromkeys(("gpu_type", "name", "booking_id", "project", "user", "title", "node", "instead_of"), TEXTS),
}
COMBINED: list[dict[str, Any]] = [
    {},
    {"booking_id": "b"},
    {"preemptible": True},
    {"disks": [{"name": "data", "path": "/run"}], "secrets": [{"name": "KEY", "path": "/run/key"}]},
    *({"disks": [{"name": "data", "read_only": reads}]} for reads in (False, True)),
]
CHANGES = [
    {},
    *({name: value} for name, values_of_it in VALUES.items() for value in values_of_it),
    *({"end": end, "time_zone": "Europe/Stockholm"} for end in TIMES),
    *({"end": end, "time_zone": "Europe/Stockholm", "duration": ...} for end in TIMES),
    {"duration": ...},
    {"duration": ..., "start": None, "end": TIMES[1]},
    {"recurrence": "FREQ=DAILY;COUNT=3", "wait": True},
    *({"wait": waits, "auto_accept": True} for waits in (False, True)),
    *({"node": "n1", "nodes": nodes} for nodes in (1, 2)),
    {"workload": {"command": ["x"], "comand": ["y"]}},
    *(
        {"recurrence": "FREQ=DAILY;COUNT=3", "duration": ..., "end": end, "time_zone": "Europe/Stockholm"}
        for end in ("2030-01-31T11:00", *TIMES)
    ),
    *({"array": array} for array in ({"size": 4}, {"size": 0}, {"size": 4, "parallel": 2}, {"size": 10**6})),
    *({"array": {"size": 4}, "workload": {"command": ["x"]}, **more} for more in COMBINED),
    *({"gpus": 0, **more} for more in ({"nodes": 2}, {"gpu_type": "h100"}, *COMBINED)),
    *(
        {"preemptible": True, "min_runtime": least, **more}
        for least in (HOUR / 2, HOUR * 2, DAY * 9)
        for more in COMBINED
    ),
    {"duration": HOUR / 4, "end_signal": {"signal": "USR1", "before": HOUR / 2}},
    {"duration": timedelta(seconds=30), "end_signal": {"signal": "USR1"}},
    {"workload": {"env": {"A": "x"}}, "secrets": [{"name": "KEY", "env": "A"}]},
]


DATES = [*TIMES, "2030-01-31T09:00:00+01:00", "1900-01-01T00:00:00Z", "2300-01-01T00:00:00Z", None]
ADDRESSES = [
    *("ann@example.org", "ann@", "a b@example.org", "ann@example.org\n", f"{'a' * 65}@b", "x", ""),
    *("https://example.org/x", "http://h:0/", "https://u@h/", "https://h/#x", "ftp://h/", "HTTPS://H/", "https://é/"),
]
PLACES: list[dict[str, Any]] = [
    *({"nodes": nodes} for nodes in (["n1"], ["n1", "n2"], [], ["n1\n"], ["-n"], ["n"] * 1025, None)),
    *({"gpus": [{"node": node, "index": index}]} for node, index in (("n1", 0), ("n1", -1), ("n1", 1024), ("n 1", 0))),
    *(
        {"gpus": []},
        {"node": "n1"},
        {"node": "n1", "nodes": ["n2"]},
        {},
    ),
]


def check(model: type[msgspec.Struct], fields: dict[str, Any]) -> None:
    """A request is made where its contract would make it, and the same one."""
    contract = contract_of(model)
    fields = {name: value for name, value in fields.items() if name in model.__struct_fields__}
    try:
        expected = contract.model_validate(fields)
    except ValidationError:
        with pytest.raises(UsageError):
            make_request(model, fields)
        return
    sent = msgspec.json.encode(make_request(model, fields))
    assert json.loads(sent).keys() == fields.keys()
    assert contract.model_validate_json(sent) == expected


@pytest.mark.parametrize("start", [{}, {"start": "2030-01-31T09:00Z"}], ids=["job", "slot"])
@pytest.mark.parametrize("model", [JobSubmit, ExplainRequest, BookingCreate])
def test_a_request_is_made_where_its_contract_would_make_it(model: type[msgspec.Struct], start: dict[str, str]) -> None:
    for changed in CHANGES:
        fields = {"gpus": 1, "duration": timedelta(hours=1), "workload": {}, **start, **changed}
        check(model, {name: value for name, value in fields.items() if value is not ...})


def test_what_jobs_usually_ask_for_is_made_without_their_contract() -> None:
    asked: dict[str, Any] = {
        "gpus": 0,
        "duration": HOUR,
        "workload": {"command": ["x"]},
        "after": [{"job": "job-a1"}],
        "retries": {"max": 3},
        "array": {"size": 4, "parallel": 2},
        "end_signal": {"signal": "USR1", "before": timedelta(minutes=5)},
        "resources": {"cpus": 0.5, "memory": 2**30},
        "disks": [{"name": "data", "path": "/disks/data", "read_only": True}],
        "secrets": [{"name": "KEY", "env": "KEY"}],
    }
    assert plain_request(JobSubmit, asked) is not None
    assert plain_request(JobSubmit, asked | {"gpus": 1, "preemptible": True, "min_runtime": HOUR / 2}) is not None
    question = {"gpus": 0, "duration": "PT1H", "resources": {"cpus": 0.5}, "instead_of": "job-a1"}
    assert plain_request(ExplainRequest, question) is not None


@pytest.mark.parametrize("start", [{}, {"start": "2030-01-31T09:00Z"}, {"title": "T"}, {"time_zone": "Europe/Rome"}])
def test_a_change_is_made_where_its_contract_would_make_it(start: dict[str, str]) -> None:
    for changed in CHANGES:
        check(BookingChange, {name: value for name, value in (start | changed).items() if value is not ...})
        both = {"duration": timedelta(hours=1), **start, **changed}
        check(BookingChange, {name: value for name, value in both.items() if value is not ...})


@pytest.mark.parametrize("model", [UserCreate, ProjectCreate])
@pytest.mark.parametrize("name", ["ann", "Ann", "a b", "", "é", "ann\n"])
@pytest.mark.parametrize("more", [{}, {"role": "admin"}, {"title": "T"}, {"title": "a\tb"}, {"role": "king"}])
def test_a_name_is_taken_where_its_contract_takes_it(
    model: type[msgspec.Struct], name: str, more: dict[str, str]
) -> None:
    check(model, {"name": name, **more})


@pytest.mark.parametrize("channel", ["email", "slack", "webhook", "pigeon"])
def test_a_target_is_taken_where_its_contract_takes_it(channel: str) -> None:
    for address in ADDRESSES:
        check(NoticeTargetCreate, {"channel": channel, "address": address})
    for name in TEXTS:
        check(NoticeTargetCreate, {"channel": channel, "address": "ann@example.org", "name": name})


@pytest.mark.parametrize("start", [*DATES, ...])
def test_a_window_is_made_where_its_contract_would_make_it(start: Any) -> None:
    fields = {"start": start, "reason": "x", "duration": timedelta(hours=1)}
    changes: list[dict[str, Any]] = [
        *PLACES,
        *({"nodes": ["n1"], "duration": duration} for duration in VALUES["duration"]),
        *({"nodes": ["n1"], "duration": ..., "end": end} for end in (*DATES, "2031-01-01T00:00:00Z")),
        *({"nodes": ["n1"], "end": end} for end in DATES),
        *({"nodes": ["n1"], "reason": reason} for reason in (*TEXTS, "x" * 1001)),
        *({"nodes": ["n1"], "dry_run": dry_run} for dry_run in (True, 1, None)),
    ]
    for changed in changes:
        check(MaintenanceCreate, {name: value for name, value in (fields | changed).items() if value is not ...})


@pytest.mark.parametrize("hours", [0, -1.0, 0.25, 5, 1e9, 1e10, float("inf"), float("nan"), "5", True, None])
def test_a_budget_is_made_where_its_contract_would_make_it(hours: Any) -> None:
    check(TokenBudget, {"gpu_hours": hours})
    for until in DATES:
        check(TokenBudget, {"gpu_hours": hours, "until": until})


@pytest.mark.parametrize(("model", "field"), [(OidcProof, "id_token"), (KubernetesProof, "token")])
def test_a_proof_is_made_where_its_contract_would_make_it(model: type[msgspec.Struct], field: str) -> None:
    for token in ("aaa.bbb.ccc", "aaaaaaaa..", "a.b.c", "aaa.bbb.ccc\n", "aaa.bbb", "é" * 9 + ".b.c", "a" * 20_000, ""):
        proof = {"method": "oidc" if model is OidcProof else "kubernetes", field: token}
        try:
            contract_of(model).model_validate(proof)
        except ValidationError:
            assert plain_request(model, proof) is None
        else:
            assert json.loads(msgspec.json.encode(plain_request(model, proof))) == proof
