"""Work that outlives the request in which it starts."""

from contextvars import ContextVar

from ray.serve import context as serve_context

from serve_app.runtime.replica import start_task

mesh: ContextVar[str] = ContextVar("mesh", default="")


async def test_a_task_keeps_the_context_of_a_request_without_its_id() -> None:
    async def read_context() -> tuple[str, str]:
        return mesh.get(), serve_context._get_serve_request_context()._internal_request_id

    mesh.set("shop")
    serve_context._set_request_context(_internal_request_id="7")
    assert await start_task(read_context()) == ("shop", "")
    assert await read_context() == ("shop", "7"), "the request keeps its own"
