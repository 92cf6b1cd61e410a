"""A client for the published conformance suite of MCP: what ryecore does with a server.

The suite runs `python -m tests.mcp_conformance.client URL` for each of its client scenarios, and
observes the requests. The server becomes a signed item of a temporary project, its tools are pinned
and signed, and each is called through its chain, as any project does.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2

from ryecore import Rye
from ryecore.errors import RyeError
from ryecore.mcp_client.authoring import pin_tool, read_declarations, why_unpinnable
from ryecore.mcp_client.pins import ToolDeclaration
from ryecore.results import AuthorizationRequest, ToolQuestion
from tests.workspace import Workspace

_SERVER: Final = "mcp/servers/suite"
_CLIENT_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
_EXAMPLES: Final[Mapping[str, object]] = {
    "string": "text", "integer": 3, "number": 2.5, "boolean": True, "array": [], "object": {},
}  # fmt: skip


def example_of(schema: Mapping[str, Any]) -> dict[str, object]:
    """Return arguments that fit the required properties of a schema of simple types."""
    properties = schema.get("properties") or {}
    return {
        name: _EXAMPLES[str(properties.get(name, {}).get("type", "string"))]
        for name in schema.get("required") or ()
    }


def issuer_of(url: str) -> str:
    """Return the authorization server of a server, as somebody looks it up who writes its item."""
    parts = urlsplit(url)
    for path in (f"/.well-known/oauth-protected-resource{parts.path}",
                 "/.well-known/oauth-protected-resource"):  # fmt: skip
        found = httpx2.get(f"{parts.scheme}://{parts.netloc}{path}")
        if found.status_code == 200:
            return str(found.json()["authorization_servers"][0])
    return f"{parts.scheme}://{parts.netloc}"


def oauth_of(context: Mapping[str, Any], url: str) -> tuple[dict[str, object], dict[str, str]]:
    """Return a server's `config.oauth` as the suite tells it, and the variables of its secrets."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    if scenario == "auth/basic-cimd":
        return {"client_metadata_url": _CLIENT_DOCUMENT}, {}
    if "client_id" not in context:
        return {}, {}
    oauth: dict[str, object] = {"client_id": context["client_id"]}
    variables = {}
    if "client_secret" in context:
        oauth["client_secret"] = "${SUITE_SECRET}"
        variables["SUITE_SECRET"] = context["client_secret"]
    if "private_key_pem" in context:
        oauth["private_key"] = "${SUITE_KEY}"
        oauth["signing_algorithm"] = context.get("signing_algorithm", "ES256")
        variables["SUITE_KEY"] = context["private_key_pem"]
    if "valid_jwt" in context:
        oauth |= {"grant": "jwt_bearer", "assertion": "${SUITE_ASSERTION}"}
        variables["SUITE_ASSERTION"] = context["valid_jwt"]
    if "idp_id_token" in context:
        oauth["grant"] = "jwt_bearer"
        oauth["identity"] = {
            "token_endpoint": context["idp_token_endpoint"],
            "client_id": context["idp_client_id"],
            "id_token": "${SUITE_IDENTITY}",
        }
        variables["SUITE_IDENTITY"] = context["idp_id_token"]
    if variables:
        oauth["issuer"] = issuer_of(url)
    if "client-credentials" in scenario:
        oauth["grant"] = "client_credentials"
    return oauth, variables


async def consent(question: ToolQuestion, /) -> Mapping[str, object]:
    """Accept each form; what it asks for by name is confirmed, and the rest left to defaults."""
    schema: Any = question.params.get("requestedSchema") or {}
    return {"action": "accept", "content": example_of(schema)}


class Visitor:
    """A person without a browser, who consents: the page redirects at once."""

    redirect_uri = "http://localhost:3000/callback"

    async def __call__(self, request: AuthorizationRequest, /) -> str:
        """Open the page, and return where it leads."""
        async with httpx2.AsyncClient() as client:
            response = await client.get(request.url)
        return response.headers["location"]


class SuiteClient:
    """A project with one server, whose tools are called as a scenario wants.

    Args:
        workspace: The project.
        url: The server's URL.
        context: What the suite tells of the scenario.
    """

    def __init__(self, workspace: Workspace, url: str, context: Mapping[str, Any]) -> None:
        self._workspace = workspace
        self._context = context
        oauth, variables = oauth_of(context, url)
        workspace.environ |= variables
        workspace.yaml(
            _SERVER,
            executor_id=None,
            tool_type="mcp_server",
            may_ask=["elicit"],
            env_config={"env": {name: f"${{{name}}}" for name in variables}},
            config={"transport": "http", "url": url, "startup_timeout": 60}
            | ({"oauth": oauth} if oauth else {}),
        )

    async def run(self) -> None:
        """List the tools, pin and sign them, and call them."""
        async with self._workspace.open(authorize=Visitor(), ask=consent) as rye:
            listed = await rye.execute(f"tool:{_SERVER}")
            listed.raise_for_status()
            declared = read_declarations(listed.data["tools"])  # type: ignore[index]
            pinned = {
                name: self._pin(tool, rye)
                for name, tool in declared.items()
                if not why_unpinnable(tool)
            }
            async with anyio.create_task_group() as calls:
                for name, arguments in self._calls(declared):
                    if name in pinned:
                        calls.start_soon(self._call, rye, pinned[name], arguments)

    def _pin(self, tool: ToolDeclaration, rye: Rye) -> str:
        space = rye.spaces.project
        item = pin_tool(tool, server=_SERVER, transport="http", folder="mcp/suite", space=space)
        rye.sign(str(item.path))
        return f"tool:{item.item_id}"

    def _calls(
        self, declared: Mapping[str, ToolDeclaration]
    ) -> list[tuple[str, Mapping[str, object]]]:
        """Return the calls that the scenario names; else one of each tool."""
        if "toolCalls" in self._context:
            # A schema of ours takes no null for a boolean: what is null is left out.
            return [
                (one["name"], {key: value for key, value in one["arguments"].items()
                               if value is not None})
                for one in self._context["toolCalls"]
            ]  # fmt: skip
        calls: list[tuple[str, Mapping[str, object]]] = []
        for name, tool in declared.items():
            arguments = example_of(tool.input_schema)
            if "schema" in arguments:  # it is to get the schema of another tool, as it was read
                others = [one for one in declared.values() if one is not tool]
                arguments["schema"] = others[0].input_schema
            calls.append((name, arguments))
        return calls

    async def _call(self, rye: Rye, ref: str, arguments: Mapping[str, object]) -> None:
        try:
            done = await rye.execute(ref, dict(arguments))
        except RyeError as error:
            _say(f"{ref}: {error} {error.next_step}")
        else:
            _say(f"{ref}: {done.status} {done.data}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> None:
    """Run the scenario that the environment names against the server at the last argument."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        client = SuiteClient(Workspace(Path(folder)), sys.argv[-1], context)
        anyio.run(partial(client.run))


if __name__ == "__main__":
    main()
