"""The Python client: its methods with signatures and docstrings, and which one calls which route."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serve_app.api.client import Client

CALLS = {  # by operation; all other views of a mesh are read with `read`
    "accept": "accept_incident",
    "baseline": "baseline",
    "compare_models": "compare_models",
    "delete": "delete",
    "delete_view": "delete_view",
    "drift": "drift",
    "embeddings": "embeddings",
    "feedback": "feedback",
    "graph": "graph",
    "incidents": "incidents",
    "lift": "unmute",
    "meshes": "meshes",
    "metrics": "metrics",
    "models": "models",
    "mute": "mute",
    "mutes": "mutes",
    "promote_model": "promote_model",
    "push": "push",
    "range": "range",
    "roll_back_model": "roll_back_model",
    "save_view": "save_view",
    "saved_views": "saved_views",
    "take_back": "withdraw_feedback",
    "tell": "give_feedback",
    "try_model": "try_model",
    "verdict": "verdict",
}
MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])")  # before the name of a type

FUNCTION = re.compile(r"<function .*? at 0x\w+>")  # a default, whose address differs in each process


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the client.

    Attributes:
        name: of the method.
        signature: with types, without ``self``.
        text: its docstring.
    """

    name: str
    signature: str
    text: str


def constructor() -> Method:
    """How a client is made."""
    return Method("Client", _signature(Client.__init__).removesuffix(" -> None"), inspect.getdoc(Client) or "")


def methods() -> Iterator[Method]:
    """The public methods, in the order of the source."""
    for name, member in vars(Client).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            yield Method(name, _signature(member), inspect.getdoc(member) or "")


def call_of(operation_id: str, method: str, path: str) -> str:
    """The name of the client's method that calls a route; empty: none does."""
    if operation_id in CALLS:
        return CALLS[operation_id]
    is_view = method == "GET" and re.fullmatch(r"/v1/meshes/\{mesh\}/\w+", path)
    return "read" if is_view and operation_id not in ("report", "map") else ""


def _signature(function: Any) -> str:
    found = inspect.signature(function)
    without_self = found.replace(parameters=list(found.parameters.values())[1:])
    return FUNCTION.sub("...", MODULES.sub("", str(without_self)))
