"""Servers that answer each request with how they read it: its method, its target, and its body in hexadecimal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Any


def echo(method: str, target: str, body: bytes) -> bytes:
    return f"ECHO {method} {target} {body.hex() or '-'}\n".encode("latin-1")


async def asgi(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[dict[str, Any]], Any]) -> None:
    """For uvicorn and hypercorn."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    query = scope["query_string"]
    target = scope["raw_path"].partition(b"?")[0] + (b"?" + query if query else b"")
    answer = echo(scope["method"], target.decode("latin-1"), body)
    headers = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """For gunicorn."""
    answer = echo(environ["REQUEST_METHOD"], environ["RAW_URI"], environ["wsgi.input"].read())
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]


async def aiohttp_server(port: int) -> None:
    from aiohttp import web

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.Response(body=echo(request.method, request.raw_path, await request.read()))

    server = web.ServerRunner(web.Server(handle))
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(aiohttp_server(int(sys.argv[1])))
