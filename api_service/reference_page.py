"""The page at /docs: every call, from the same document as /openapi.json, with nothing loaded from anywhere else."""

import json
import re
from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_CODE = re.compile(r"`([^`]+)`")
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d2330;background:#fff}
code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f3f5f8;padding:.8rem;overflow:auto;border-radius:6px}
details{border-bottom:1px solid #dde2ea;padding:.5rem 0}summary{cursor:pointer}
summary,td{overflow-wrap:anywhere}summary b{display:inline-block;width:4.5rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#dfe4ee;background:#12151c}
a{color:#8ab4f8}pre{background:#1d222d}details{border-color:#303746}}
"""


def render(document: dict[str, Any]) -> str:
    """HTML of an OpenAPI document."""
    info = document["info"]
    operations = "".join(
        _operation(method, path, operation, document)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style><h1>{escape(info['title'])}</h1>"
        f'<p>{_prose(info.get("description", ""))}</p><p>For tools: <a href="/openapi.json">/openapi.json</a></p>'
        f"{operations}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    parts = [f"<p>{_prose(operation.get('description', ''))}</p>"]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}<td>{_prose(p.get('description', ''))}"
            for p in parameters
        )
        parts.append(f"<table><tr><th>Parameter<th>In<th>Meaning{rows}</table>")
    body = operation.get("requestBody", {}).get("content", {})
    if "application/json" in body:
        example = _body_example(body["application/json"]["schema"], document)
        parts.append(f"<p>Body, for example:</p><pre>{escape(json.dumps(example, indent=2))}</pre>")
    elif body:
        parts.append(f"<p>Body: <code>{escape(', '.join(body))}</code>, as described above.</p>")
    rows = "".join(
        f"<tr><td>{escape(status)}<td>{_prose(response.get('description', ''))}"
        for status, response in sorted(operation["responses"].items())
    )
    parts.append(f"<table><tr><th>Answer<th>Meaning{rows}</table>")
    summary = escape(operation.get("summary", ""))
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {summary}</summary>"
        f"{''.join(parts)}</details>"
    )


def _prose(text: str) -> str:
    """HTML of a text, with code between backticks."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _body_example(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    named = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    examples = named.get("examples")
    return examples[0] if examples else dict.fromkeys(named.get("properties", {}), "…")
