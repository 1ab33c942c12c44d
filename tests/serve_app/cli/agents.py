"""An agent that uses the tools of ``tagae mcp`` through the client of the reference SDK."""

import json
import os
import sys
from typing import Any

import mcp
from mcp.types import CallToolResult, TextContent

from tests.timing import PATIENCE_SECONDS


def agent(*arguments: str) -> mcp.Client:
    """An agent that starts ``tagae mcp`` and talks to it over stdin and stdout."""
    command = ["-c", "from serve_app.cli import main; main()", "mcp", *arguments]
    parameters = mcp.StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    return mcp.Client(parameters, read_timeout_seconds=PATIENCE_SECONDS)


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def call(client: mcp.Client, tool: str, **arguments: Any) -> Any:
    """Call a tool and return its whole document."""
    result = await client.call_tool(tool, arguments)
    (text,) = texts(result)
    assert not result.is_error, text
    return json.loads(text)


async def refusal(client: mcp.Client, tool: str, **arguments: Any) -> str:
    """Call a tool and return the text of its error."""
    result = await client.call_tool(tool, arguments)
    (text,) = texts(result)
    assert result.is_error, text
    return text
