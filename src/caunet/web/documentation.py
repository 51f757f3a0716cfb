"""``/docs``: the OpenAPI document as one plain page, without scripts.

FastAPI's own page loads Swagger UI from another server, or 1.5 MB of scripts would have to come with the package, and
it needs an inline script, which the Content-Security-Policy forbids.
"""

import html
import json
from typing import Any

__all__ = ["render"]


def render(document: dict[str, Any]) -> str:
    """HTML of an OpenAPI document: every operation with its description, examples and answers."""
    info = document["info"]
    operations = [
        _operation(method, path, what)
        for path, methods in document["paths"].items()
        for method, what in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(info['title'])}</title>"
        '<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/base.css"></head>'
        f'<body class="docs"><main><h1>{html.escape(info["title"])}</h1><p>{html.escape(info["description"])}</p>'
        '<p>The whole document: <a href="/openapi.json">openapi.json</a>. The page: <a href="/">here</a>.</p>'
        + "".join(operations)
        + "</main></body></html>"
    )


def _operation(method: str, path: str, what: dict[str, Any]) -> str:
    parts = [
        f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2>",
        f"<p>{html.escape(what.get('summary', ''))}</p>",
        *(f"<p>{html.escape(text)}</p>" for text in what.get("description", "").split("\n\n") if text),
    ]
    content = what.get("requestBody", {}).get("content", {})
    for kind, body in content.items():
        parts.append(f"<h3>{html.escape(kind)}</h3>")
        parts.append("<p>or</p>".join(_fields(one) for one in body["schema"].get("oneOf", [body["schema"]])))
        for example in body.get("examples", {}).values():
            shown = html.escape(json.dumps(example["value"]))
            parts.append(f"<p>{html.escape(example['summary'])}:</p><pre>{shown}</pre>")
    rows = "".join(
        f"<tr><th>{code}</th><td>{html.escape(answer['description'])}</td></tr>"
        for code, answer in what["responses"].items()
    )
    return "".join([*parts, f"<h3>Answers</h3><table>{rows}</table></section>"])


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{'required' if name in required else 'optional'}</td>"
        f"<td>{html.escape(field.get('description', ''))}</td></tr>"
        for name, field in schema["properties"].items()
    )
    return f"<table>{rows}</table>"
