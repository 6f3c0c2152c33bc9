"""An API server in Python for tests: kmock's emulator over HTTP, with the server semantics that pods depend on.

kmock serves the connection, discovery and errors; objects are kept by `emulated_store`, because kmock's own know no
resource versions, selectors, pages, subresources, conflicts, grace or history. Run as
`python -m tests.kubernetes.emulated.emulator`: prints its port, and ends when its standard input does.

Beside the API: `POST /emulator/forget-changes` (as a compaction: older versions answer 410 from then on) and
`GET /emulator/version` (the newest resource version).
"""

import asyncio
import gc
import json
import re
import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import aiohttp
import attrs
from aiohttp import web
from kmock import KubernetesScaffold, ResourceInfo, Server
from yarl import URL

from tests.kubernetes.emulated.patches import patched
from tests.kubernetes.emulated.pods import bound_pod, check_metadata, check_pod_update, invalid, new_pod, pod_grace
from tests.kubernetes.emulated.selectors import selector
from tests.kubernetes.emulated.store import ApiError, JsonObject, Resource, Store
from tests.kubernetes.emulated.tokens import Tokens
from tests.kubernetes.emulated.watches import page, watch
from tests.kubernetes.node.passed_websockets import pass_on

_PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/(?!status$|finalize$)))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?$"
)
_EXTRA = (
    Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True),
    Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False),
)
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_SUCCESS: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_AT_KUBELETS = {"stdin": "input", "stdout": "output", "stderr": "error", "ports": "port"}
"""What kubelets call the parameters of exec and portforward."""

_DEFINITIONS = "customresourcedefinitions"
_STATUS_OF_ITS_OWN = ("pods", "nodes", "namespaces", "services")


@attrs.frozen(kw_only=True)
class Asked:
    """What a request is about."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None
    raw: web.BaseRequest

    @property
    def query(self) -> Mapping[str, str]:
        """Of the address."""
        return self.raw.query


@attrs.define(kw_only=True)
class Emulator(KubernetesScaffold):
    """kmock's handler, answering for objects from a `Store`."""

    store: Store = attrs.field(factory=Store, init=False)
    _tokens: Tokens = attrs.field(factory=Tokens, init=False)
    _known: dict[tuple[str, str, str], Resource] = attrs.field(factory=dict, init=False)
    _kubelets: aiohttp.ClientSession | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.resources.load_bundled()
        verbs = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
        for extra in _EXTRA:
            info = ResourceInfo(namespaced=extra.namespaced, kind=extra.kind, verbs=verbs)
            self.resources[f"{extra.group}/{extra.version}/{extra.plural}"] = info
        for key in self.resources:
            info = self.resources[key]
            known = Resource(str(key.group), str(key.version), str(key.plural), str(info.kind), bool(info.namespaced))
            self._known[known.group, known.version, known.plural] = known
        for name in ("default", "kube-system"):
            self.store.create(_NAMESPACES, None, {"metadata": {"name": name}, "status": {"phase": "Active"}})

    async def __call__(self, raw_request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; what is not about an object is kmock's to answer."""
        try:
            if raw_request.path == "/emulator/forget-changes":
                self.store.forget_changes()
                return web.json_response({})
            if raw_request.path == "/emulator/version":
                return web.json_response({"resourceVersion": str(self.store.version)})
            if raw_request.path in ("/healthz", "/readyz", "/livez"):
                return web.Response(text="ok")
            asked = self._understood(raw_request)
            if asked is None:
                self._requests.clear()
                return await super().__call__(raw_request)
            return await self._answer(asked)
        except ApiError as problem:
            headers = {"Retry-After": "1"} if problem.code == 429 else None
            return web.json_response(problem.status(), status=problem.code, headers=headers)

    def _understood(self, raw: web.BaseRequest) -> Asked | None:
        found = _PATH.match(raw.path)
        if found is None:
            return None
        parts = found.groupdict()
        key = (parts["group"] or "", parts["core"] or parts["version"], parts["plural"])
        resource = self._known.get(key)
        if resource is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return Asked(
            resource=resource,
            namespace=parts["namespace"],
            name=parts["name"],
            subresource=parts["subresource"],
            raw=raw,
        )

    async def _answer(self, asked: Asked) -> web.StreamResponse:
        match asked.raw.method:
            case "GET":
                return await self._read(asked)
            case "POST" if asked.resource.plural == "tokenreviews":
                accounts = self._known["", "v1", "serviceaccounts"]
                review = self._tokens.review(
                    await asked.raw.json(), lambda where, name: self.store.find(accounts, where, name) is not None
                )
                return web.json_response(review, status=201)
            case "POST":
                return web.json_response(self._post(asked, await asked.raw.json()), status=201)
            case "PUT" if asked.name and asked.subresource in (None, "status"):
                old = self.store.get(asked.resource, asked.namespace, asked.name)
                return web.json_response(self._change(asked, old, await asked.raw.json()))
            case "PATCH" if asked.name and asked.subresource in (None, "status"):
                return await self._patch(asked, asked.name)
            case "DELETE" if asked.subresource is None:
                body = await asked.raw.read()
                return web.json_response(self._delete_asked(asked, json.loads(body) if body else {}))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    async def _read(self, asked: Asked) -> web.StreamResponse:
        if asked.name is None and asked.query.get("watch") in ("1", "true"):
            return await watch(self.store, asked.resource, asked.namespace, asked.raw)
        if asked.name is None:
            return page(self.store, asked.resource, asked.namespace, asked.query)
        if asked.subresource == "log":
            return await self._log(asked, asked.name)
        if asked.subresource in ("exec", "portforward"):
            return await self._streams(asked, asked.name, asked.subresource)
        return web.json_response(self.store.get(asked.resource, asked.namespace, asked.name))

    def _post(self, asked: Asked, body: JsonObject) -> JsonObject:
        name = asked.name
        if name is None:
            return self._create(asked, body)
        if asked.subresource == "binding":
            pod = self.store.get(asked.resource, asked.namespace, name)
            self.store.replace(asked.resource, pod, bound_pod(pod, body))
            return _SUCCESS
        if asked.subresource == "eviction":
            return self._delete(asked, name, body.get("deleteOptions") or {})
        if asked.subresource == "token":
            return self._tokens.issue(str(asked.namespace), name, body)
        raise ApiError(404, "NotFound", "the server could not find the requested resource")

    def _delete_asked(self, asked: Asked, options: JsonObject) -> JsonObject:
        if asked.name is not None:
            return self._delete(asked, asked.name, options)
        lets_through = selector(asked.query)
        for manifest in [*self.store.objects(asked.resource, asked.namespace)]:
            if lets_through(manifest):
                self._delete(asked, manifest["metadata"]["name"], options)
        return _SUCCESS

    def _create(self, asked: Asked, new: JsonObject) -> JsonObject:
        resource, namespace = asked.resource, asked.namespace
        metadata = new.setdefault("metadata", {})
        if metadata.get("namespace", namespace) != namespace:
            raise ApiError(400, "BadRequest", "the namespace of the provided object does not match the namespace sent")
        if not metadata.get("generateName"):
            check_metadata(resource.kind, metadata)
        if resource.namespaced:
            if namespace is None:
                raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the resource")
            self.store.get(_NAMESPACES, None, namespace)
        if resource.plural == "pods":
            new = new_pod(new)
        elif resource.plural in ("nodes", "namespaces"):
            new.setdefault("spec", {})
            new.setdefault("status", {"phase": "Active"} if resource.plural == "namespaces" else {})
        if asked.query.get("dryRun"):
            return new
        if resource.plural == _DEFINITIONS:
            self._known |= _defined(new)
        return self.store.create(resource, namespace, new)

    async def _patch(self, asked: Asked, name: str) -> web.StreamResponse:
        body, content_type = await asked.raw.read(), asked.raw.headers.get("Content-Type", "")
        old = self.store.find(asked.resource, asked.namespace, name)
        if old is None and content_type.startswith("application/apply-patch"):
            return web.json_response(self._create(asked, json.loads(body)), status=201)
        old = self.store.get(asked.resource, asked.namespace, name)
        new = patched(old, content_type, body)
        if new["metadata"].get("uid") != old["metadata"]["uid"]:
            why = f'Invalid value: "{new["metadata"].get("uid")}": field is immutable'
            raise invalid(asked.resource.kind, name, "metadata.uid", why)
        return web.json_response(self._change(asked, old, new))

    def _change(self, asked: Asked, old: JsonObject, wanted: JsonObject) -> JsonObject:
        """Take from `wanted` what this address may change."""
        new = deepcopy(wanted)
        new["metadata"] = {**new.get("metadata", {})}
        if asked.resource.plural in _STATUS_OF_ITS_OWN:
            kept = "spec" if asked.subresource == "status" else "status"
            new.pop(kept, None)
            if kept in old:
                new[kept] = old[kept]
        check_metadata(asked.resource.kind, {**new["metadata"], "name": old["metadata"]["name"]})
        if asked.resource.plural == "pods":
            check_pod_update(old, new)
        new |= {"kind": old["kind"], "apiVersion": old["apiVersion"]}
        if asked.query.get("dryRun"):
            return new
        return self.store.replace(asked.resource, old, new)

    def _delete(self, asked: Asked, name: str, options: JsonObject) -> JsonObject:
        namespace = asked.namespace
        old = self.store.get(asked.resource, namespace, name)
        wanted = options.get("preconditions") or {}
        for key in ("uid", "resourceVersion"):
            if wanted.get(key) and wanted[key] != old["metadata"][key]:
                why = f"the {key} in the precondition ({wanted[key]}) does not match the {key} in record"
                raise Store.conflict(asked.resource, name, f"{why} ({old['metadata'][key]})")
        given = options.get("gracePeriodSeconds", asked.query.get("gracePeriodSeconds"))
        seconds = None if given is None else int(given)
        is_pod = asked.resource.plural == "pods"
        grace = pod_grace(old, seconds) if is_pod else 0
        if options.get("dryRun") or asked.query.get("dryRun"):
            return old
        if asked.resource.plural == _DEFINITIONS:
            for kind in _defined(old):
                self._known.pop(kind, None)
        return self.store.delete(asked.resource, old, grace, graceful=is_pod)

    async def _log(self, asked: Asked, name: str) -> web.StreamResponse:
        """Pass a pod's log on from its node's kubelet, as an API server does."""
        pod = self.store.get(asked.resource, asked.namespace, name)
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        url = f"{self._kubelet_of(pod)}/containerLogs/{asked.namespace}/{name}/{_container(pod, asked.query)}"
        query = {key: value for key, value in asked.query.items() if key != "container"}
        try:
            async with self._kubelet_client().get(url, params=query) as answer:
                if answer.status == 404:
                    raise ApiError(404, "NotFound", f'pods "{name}" not found')
                if answer.status != 200:
                    raise ApiError(400, "BadRequest", (await answer.text()).strip())
                return await _passed_on(asked.raw, answer)
        except aiohttp.ClientError as problem:
            raise ApiError(500, "InternalError", f"Get {url!r}: {problem}") from problem

    async def _streams(self, asked: Asked, name: str, way: str) -> web.StreamResponse:
        """Pass a WebSocket on to the kubelet of a pod's node."""
        pod = self.store.get(asked.resource, asked.namespace, name)
        if not pod["spec"].get("nodeName"):
            raise ApiError(400, "BadRequest", f"pod {name} does not have a host assigned")
        where = f"portForward/{asked.namespace}/{name}"
        if way == "exec":
            where = f"exec/{asked.namespace}/{name}/{_container(pod, asked.query)}"
        query = [
            (_AT_KUBELETS.get(key, key), "1" if value == "true" and key != "command" else value)
            for key, value in asked.query.items()
        ]
        target = URL(f"{self._kubelet_of(pod)}/{where}").with_query(query)
        return await pass_on(asked.raw, self._kubelet_client(), target)

    def _kubelet_of(self, pod: JsonObject) -> str:
        node_name = pod["spec"]["nodeName"]
        nodes = self._known["", "v1", "nodes"]
        status: Any = (self.store.find(nodes, None, node_name) or {}).get("status", {})
        port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
        address = next(
            (address["address"] for address in status.get("addresses", []) if address["type"] == "InternalIP"), None
        )
        if not port or not address:
            raise ApiError(500, "InternalError", f"no preferred addresses found for node {node_name}")
        return f"http://{address}:{port}"

    def _kubelet_client(self) -> aiohttp.ClientSession:
        if self._kubelets is None:  # a real server would ask over TLS
            timeout = aiohttp.ClientTimeout(total=None)
            self._kubelets = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        return self._kubelets


def _defined(definition: JsonObject) -> dict[tuple[str, str, str], Resource]:
    """The kinds that a CustomResourceDefinition adds to the cluster, a version each."""
    spec = definition["spec"]
    group, plural, kind = spec["group"], spec["names"]["plural"], spec["names"]["kind"]
    is_namespaced = spec["scope"] == "Namespaced"
    names = [version["name"] for version in spec["versions"]]
    return {(group, name, plural): Resource(group, name, plural, kind, is_namespaced) for name in names}


def _container(pod: JsonObject, query: Mapping[str, str]) -> str:
    containers = [str(container["name"]) for container in pod["spec"]["containers"]]
    container = query.get("container", containers[0])
    if container not in containers:
        raise ApiError(400, "BadRequest", f"container {container} is not valid for pod {pod['metadata']['name']}")
    return container


async def _passed_on(raw: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    passed = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await passed.prepare(raw)
    try:
        async for chunk in answer.content.iter_any():
            await passed.write(chunk)
        await passed.write_eof()
    except ConnectionError:
        return passed  # the reader has gone
    return passed


async def serve() -> None:
    """Listen on a free port, say which, and serve until standard input ends."""
    gc.set_threshold(50_000, 50, 50)
    async with Emulator() as emulator, Server(emulator) as server:
        print(server.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
