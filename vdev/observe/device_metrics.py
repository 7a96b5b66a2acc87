"""The HTTP application with the sensors of devices. It has its own port, because scrapers expect that of exporters.

    /metrics   Prometheus' text format        /healthz   200
    /          a line that says what this is

`telemetry/page.py` writes the text. The library would sort labels and append _total to the names of counters.
"""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .http import answering

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def application(page: Callable[..., str], nodes: Callable[[], Sequence[str]] | None = None) -> Starlette:
    """Return the application; `page` makes the metrics. Starlette calls it in a thread.

    With `nodes` it is about many of them: `page` takes a node's name for its metrics alone, which are at
    /nodes/<name>/metrics, and /targets lists these for Prometheus (http_sd_configs).
    """

    def metrics(request: Request) -> Response:
        node = request.path_params.get("node", "")
        if nodes is not None and node and node not in nodes():
            return PlainTextResponse(f"no node {node} measures anything here\n", status_code=404)
        return Response(page(node) if node else page(), headers={"Content-Type": _TEXT})

    async def targets(request: Request) -> Response:
        here = request.headers.get("host", "")
        names = nodes() if nodes is not None else ()
        return JSONResponse(
            [
                {"targets": [here], "labels": {"__metrics_path__": f"/nodes/{each}/metrics", "node": each}}
                for each in names
            ]
        )

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def index(_request: Request) -> Response:
        whose = "this node" if nodes is None else "all nodes"
        return PlainTextResponse(f"what the devices of {whose} measure is at /metrics\n")

    return answering(
        Route("/", index),
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/health", healthz),
        *([Route("/targets", targets), Route("/nodes/{node}/metrics", metrics)] if nodes is not None else ()),
    )
