"""The seed's own lines on both clouds: an upgrade with one's own values alone takes nothing away, and people sign in
with the cloud's identities.
"""

import tomllib
from typing import Any

import helm_python
import pytest

from reservation_core.domain.errors import SignInRefusedError
from reservation_core.domain.people.sign_in import ProvedIdentity, let_in
from reservation_core.domain.statuses import Role, SignInMethod
from reservation_core.runtime.reading.sign_in_file import SignInFile, parse
from reservation_core.runtime.settings.auth import AuthSettings
from tests.chart.dev_server.dev_server_schema import CHART
from tests.chart.dev_server.dev_server_values import CONTROLPLANE, SEEDS_AWS, SEEDS_GCP, file, over, rendered, variables
from tests.chart.in_cluster import rendered_in
from tests.chart.rendering import JsonObject, one

ACCOUNT, PROJECT = "123456789012", "my-project"
ARN = {"eks.amazonaws.com/role-arn": f"arn:aws:iam::{ACCOUNT}:role/api-service-role"}
AWS = over(SEEDS_AWS, {"apiService": {"serviceAccount": {"annotations": ARN}}})
INGRESS: dict[str, Any] = {"apiService": {"ingress": {"enabled": True, "host": "gpus.test"}}}
MINE = {"aws": AWS, "gcp": SEEDS_GCP}
CLAIMS = ("postgres-backups", "registry-cache-ghcr", "registry-cache-dockerhub")
SETS = ("postgres-primary", "postgres-replica")


def all_but_secrets(documents: list[JsonObject]) -> list[JsonObject]:
    """The parts that are the same with each rendering."""
    return [document for document in documents if document["kind"] != "Secret"]


@pytest.mark.parametrize("cloud", MINE)
def test_an_upgrade_with_ones_own_values_alone_wants_what_the_installation_wanted(cloud: str) -> None:
    """But for AWS's storage class, which stays where it is."""
    mine = over(MINE[cloud], INGRESS)
    installed, upgraded = rendered(over(file(cloud), mine)), rendered(mine)
    gone = [manifest for manifest in all_but_secrets(installed) if manifest not in upgraded]
    assert [manifest for manifest in all_but_secrets(upgraded) if manifest not in installed] == []
    assert [(manifest["kind"], manifest["metadata"]["name"]) for manifest in gone] == (
        [("StorageClass", "gp3")] if cloud == "aws" else []
    )
    assert all(manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for manifest in gone)


def classes(documents: list[JsonObject]) -> dict[str, str | None]:
    """Each claim's storage class."""
    found = {
        document["metadata"]["name"]: document["spec"].get("storageClassName")
        for document in documents
        if document["kind"] == "PersistentVolumeClaim"
    }
    for document in documents:
        if document["kind"] == "StatefulSet":
            (claim,) = document["spec"]["volumeClaimTemplates"]
            found[document["metadata"]["name"]] = claim["spec"].get("storageClassName")
    return found


def volumes(storage_class: str | None) -> dict[str, JsonObject]:
    """A cluster that has our claims, made with this class; None: with the cluster's default one."""
    claim: JsonObject = {"spec": {} if storage_class is None else {"storageClassName": storage_class}}
    default: JsonObject = {"spec": {"storageClassName": storage_class or "standard-rwo"}}
    there = {f"v1/PersistentVolumeClaim/{CONTROLPLANE}/{name}": default for name in CLAIMS}
    sets = {f"apps/v1/StatefulSet/{CONTROLPLANE}/{name}": {"spec": {"volumeClaimTemplates": [claim]}} for name in SETS}
    return {**there, **sets}


@pytest.mark.parametrize("values", [*MINE.values(), {}, {"storage": {"class": "another"}}])
def test_claims_keep_the_class_that_they_have_whatever_the_values_say(values: dict[str, Any]) -> None:
    kept = classes(rendered_in(volumes("fast"), values, upgrade=True))
    assert kept == dict.fromkeys((*CLAIMS, *SETS), "fast")
    # The set's own claims name none; of the others the cluster wrote down which it chose.
    kept = classes(rendered_in(volumes(None), values, upgrade=True))
    assert kept == {**dict.fromkeys(CLAIMS, "standard-rwo"), **dict.fromkeys(SETS)}


def test_what_is_not_there_yet_gets_the_class_of_the_values_or_of_the_cloud() -> None:
    only_the_set = {name: volume for name, volume in volumes("fast").items() if "StatefulSet" in name}
    mixed = classes(rendered_in(only_the_set, SEEDS_GCP, upgrade=True))
    assert mixed == {**dict.fromkeys(CLAIMS, "pd-ssd"), **dict.fromkeys(SETS, "fast")}
    assert {*classes(rendered(over(SEEDS_GCP, {"storage": {"class": "mine"}}))).values()} == {"mine"}
    assert {*classes(rendered({"storage": {"class": ""}})).values()} == {None}


def test_what_the_values_say_goes_before_what_the_cloud_s_file_says() -> None:
    mine = over(over(SEEDS_GCP, INGRESS), {
        "settings": {"GPU_DEV_GPU__ATTACH": "env"},
        "workloads": {"podDefaults": {"runtimeClassName": "nvidia"}},
        "apiService": {"ingress": {"className": "nginx", "annotations": {"a": "b"}},
                       "service": {"annotations": {"cloud.google.com/neg": "none"}}},
    })  # fmt: skip
    documents = rendered(mine)
    assert variables(one(documents, "Deployment", "api-service"))["GPU_DEV_GPU__ATTACH"] == "env"
    assert (
        "runtimeClassName: nvidia" in one(documents, "ConfigMap", "gpu-dev-configuration")["data"]["pod-defaults.yaml"]
    )
    ingress = one(documents, "Ingress")
    assert (ingress["spec"]["ingressClassName"], ingress["metadata"]["annotations"]) == ("nginx", {"a": "b"})
    assert one(documents, "Service", "api-service")["metadata"]["annotations"]["cloud.google.com/neg"] == "none"
    assert not [document for document in documents if document["kind"] == "BackendConfig"]


def sign_in(documents: list[JsonObject]) -> tuple[SignInFile, AuthSettings]:
    """What the API reads, by its own readers."""
    text = one(documents, "ConfigMap", "gpu-dev-api-configuration")["data"]["sign-in.toml"]
    told = variables(one(documents, "Deployment", "api-service"))
    ids = AuthSettings.model_validate({"server_ids": told["GPU_DEV_AUTH__SERVER_IDS"]})
    return parse(text.encode(), "sign-in.toml"), ids


def aws(account: str = ACCOUNT, **attributes: str) -> ProvedIdentity:
    shown = {name: (value,) for name, value in {"account": account, **attributes}.items()}
    return ProvedIdentity(SignInMethod.AWS, "arn", shown)


@pytest.mark.parametrize("values", [over(file("aws"), AWS), AWS], ids=["installed", "upgraded"])
def test_identities_of_the_account_sign_in_after_the_seeds_commands_on_aws(values: dict[str, Any]) -> None:
    read, settings = sign_in(rendered(values))
    assert settings.server_ids == (f"gpu-dev:{ACCOUNT}/my-gpu-cluster/{CONTROLPLANE}",)
    people = {
        "aws-sso-ann@lab.org": aws(iam_role="AWSReservedSSO_gpu-users_0a1b", session="ann@lab.org"),
        "aws-user-ann": aws(iam_user="ann"),
        "aws-role-trainer": aws(iam_role="trainer", session="whatever-they-chose"),
    }
    for user, identity in people.items():
        found = let_in(read.rules, identity)
        assert (found.user, found.role, found.create) == (user, Role.USER, False)
        with pytest.raises(SignInRefusedError):
            let_in(
                read.rules,
                aws(account="999999999999", **{k: v[0] for k, v in identity.attributes.items() if k != "account"}),
            )
    policies = {manifest["metadata"]["name"] for manifest in rendered(values) if manifest["kind"] == "NetworkPolicy"}
    assert "sign-in" in policies  # the API reaches AWS


@pytest.mark.parametrize("values", [over(file("gcp"), SEEDS_GCP), SEEDS_GCP], ids=["installed", "upgraded"])
def test_service_accounts_of_the_project_sign_in_after_the_seeds_commands_on_google(values: dict[str, Any]) -> None:
    read, settings = sign_in(rendered(values))
    (issuer,) = read.issuers
    assert issuer.url == "https://accounts.google.com"
    assert issuer.audiences == {*settings.server_ids} == {f"gpu-dev:{PROJECT}/my-gpu-cluster/{CONTROLPLANE}"}

    def google(email: str) -> ProvedIdentity:
        return ProvedIdentity(SignInMethod.OIDC, email, {"issuer": (issuer.url,), "sub": ("1",), "email": (email,)})

    ours = f"trainer@{PROJECT}.iam.gserviceaccount.com"
    assert let_in(read.rules, google(ours)).user == ours
    for stranger in (
        "trainer@other.iam.gserviceaccount.com",
        f"x@{PROJECT}.iam.gserviceaccount.com.evil.org",
        "ann@lab.org",
    ):
        with pytest.raises(SignInRefusedError):
            let_in(read.rules, google(stranger))


@pytest.mark.parametrize("cloud", MINE)
def test_where_people_know_an_address_proofs_are_meant_for_that(cloud: str) -> None:
    read, settings = sign_in(rendered(over(MINE[cloud], INGRESS)))
    assert settings.server_ids == ("https://gpus.test",)
    ids = {"apiService": {"settings": {"GPU_DEV_AUTH__SERVER_IDS": "https://a.test, https://b.test"}}}
    several, settings = sign_in(rendered(over(MINE[cloud], ids)))
    assert settings.server_ids == ("https://a.test", "https://b.test")
    for listed_sign_in, audiences in ((read, {"https://gpus.test"}), (several, {*settings.server_ids})):
        assert all(issuer.audiences == audiences for issuer in listed_sign_in.issuers)


def test_users_are_made_where_that_is_asked_for() -> None:
    for mine in MINE.values():
        read, _ = sign_in(rendered(over(mine, {"apiService": {"signIn": {"cloud": {"create": True}}}})))
        assert all(rule.create for rule in read.rules)


@pytest.mark.parametrize(
    "values",
    [
        over(file("aws"), SEEDS_AWS),  # the seed's own ACCOUNT, not filled in
        over(AWS, {"apiService": {"signIn": {"cloud": {"enabled": False}}}}),
        over(SEEDS_GCP, {"apiService": {"signIn": {"cloud": {"enabled": False}}}}),
        over(SEEDS_GCP, {"cloudProvider": {"gcp": {"projectId": ""}}}),
        over(SEEDS_GCP, {"cloudProvider": {"gcp": {"projectId": "a,b c"}}}),
        {"apiService": {"serviceAccount": {"annotations": ARN}}},
    ],
)
def test_where_nobody_knows_whose_word_counts_nobody_signs_in_so(values: dict[str, Any]) -> None:
    documents = rendered(values)
    assert "GPU_DEV_AUTH__FILE" not in variables(one(documents, "Deployment", "api-service"))
    assert not [document for document in documents if document["metadata"]["name"] == "sign-in"]


def test_a_sign_in_file_of_ones_own_is_the_only_one() -> None:
    mine = '[[aws]]\naccount = "1"\n'
    values = over(over(AWS, INGRESS), {"apiService": {"signIn": {"file": mine}}})
    assert one(rendered(values), "ConfigMap", "gpu-dev-api-configuration")["data"] == {"sign-in.toml": mine}
    assert tomllib.loads(mine)


def test_notes_say_how_people_sign_in_or_what_lacks() -> None:
    def notes(values: dict[str, Any]) -> str:
        with helm_python.Chart.load(CHART) as chart:
            return chart.render(values, name="gpu-dev", namespace="default")["gpu-dev-server/templates/NOTES.txt"]

    assert f'--aws "$GPU_DEV_SERVER" --server-id gpu-dev:{ACCOUNT}/my-gpu-cluster/{CONTROLPLANE}\n' in notes(AWS)
    assert f"gpu-dev users add ann@{PROJECT}.iam.gserviceaccount.com" in notes(SEEDS_GCP)
    assert 'login --oidc --gcp "$GPU_DEV_SERVER"\n' in notes(over(SEEDS_GCP, INGRESS))
    assert "No user can sign in with AWS's identities: the account is that of the role" in notes(SEEDS_AWS)
    off = over(AWS, {"apiService": {"signIn": {"cloud": {"enabled": False}}}})
    assert "apiService.signIn.cloud.enabled is false" in notes(off)
    assert "identities" not in notes({})
