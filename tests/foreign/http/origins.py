"""Real servers as origins, each on a port of its own, that tell how they read what they get (see `echo_app`)."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
_START_S = 20.0
#: Where Debian keeps Apache's modules.
_APACHE_MODULES = Path("/usr/lib/apache2/modules")

NODE = """
const http = require('http')
http.createServer((request, response) => {
  const parts = []
  request.on('data', part => parts.push(part))
  request.on('end', () => {
    const answer = `ECHO ${request.method} ${request.url} ${Buffer.concat(parts).toString('hex') || '-'}\\n`
    response.setHeader('Content-Length', Buffer.byteLength(answer))
    response.end(answer)
  })
}).listen(Number(process.argv[2]), '127.0.0.1')
"""
CGI = f"""#!{sys.executable} -IS
import os, sys
body = sys.stdin.buffer.read()
answer = f"ECHO {{os.environ['REQUEST_METHOD']}} {{os.environ['REQUEST_URI']}} {{body.hex() or '-'}}\\n"
sys.stdout.write(f"Content-Length: {{len(answer)}}\\r\\n\\r\\n{{answer}}")
"""
#: nginx does not show a body; where it ends shows in what comes after it.
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error crit;
events {{ worker_connections 64; }}
http {{
  access_log off; underscores_in_headers on; merge_slashes off; keepalive_requests 100000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; scgi_temp_path {folder};
  uwsgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "ECHO $request_method $request_uri ?\\n"; }} }}
}}
"""
LIGHTTPD = """
server.document-root = "{folder}"
server.bind = "127.0.0.1"
server.port = {port}
server.modules = ("mod_rewrite", "mod_cgi")
server.http-parseopts = ("url-normalize" => "disable")
server.max-keep-alive-requests = 100000
server.stream-request-body = 0
url.rewrite-once = (".*" => "/echo.cgi")
cgi.assign = (".cgi" => "")
"""
APACHE = """
ServerRoot {folder}
PidFile {folder}/pid
ServerName a
ErrorLog {folder}/error
Listen 127.0.0.1:{port}
{modules}
MaxKeepAliveRequests 0
AllowEncodedSlashes On
MergeSlashes Off
TraceEnable Off
User nobody
ScriptAliasMatch ".*" {folder}/echo.cgi
<Directory {folder}>
Require all granted
Options +ExecCGI
</Directory>
"""


def program(name: str) -> str:
    """Its path. Where it is missing the test fails and says what is needed."""
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin") or shutil.which(name)
    assert found, f"{name} is missing: make foreign installs it, or apt-get install {_PACKAGES.get(name, name)}"
    return found


_PACKAGES = {"node": "nodejs", "varnishtest": "varnish"}


def _uvicorn(kind: str) -> Callable[[Path, int], list[str]]:
    def command(_: Path, port: int) -> list[str]:
        app = ["tests.foreign.http.echo_app:asgi", "--http", kind, "--port", str(port), "--log-level", "critical"]
        return [sys.executable, "-m", "uvicorn", *app]

    return command


def _hypercorn(_: Path, port: int) -> list[str]:
    app = ["tests.foreign.http.echo_app:asgi", "--bind", f"127.0.0.1:{port}", "--log-level", "critical"]
    return [sys.executable, "-m", "hypercorn", *app]


def _gunicorn(_: Path, port: int) -> list[str]:
    worker = ["--worker-class", "gthread", "--threads", "2", "--log-level", "critical", "--bind", f"127.0.0.1:{port}"]
    return [sys.executable, "-m", "gunicorn", *worker, "tests.foreign.http.echo_app:wsgi"]


def _aiohttp(_: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "tests.foreign.http.echo_app", str(port)]


def _node(folder: Path, port: int) -> list[str]:
    (folder / "echo.js").write_text(NODE)
    return [program("node"), str(folder / "echo.js"), str(port)]


def _nginx(folder: Path, port: int) -> list[str]:
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    return [program("nginx"), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error")]


def _with_cgi(folder: Path) -> None:
    script = folder / "echo.cgi"
    script.write_text(CGI)
    script.chmod(0o755)
    for parent in (folder, *folder.parents[:2]):  # the server's user has to get there
        with contextlib.suppress(OSError):
            parent.chmod(parent.stat().st_mode | 0o055)


def _lighttpd(folder: Path, port: int) -> list[str]:
    _with_cgi(folder)
    (folder / "lighttpd.conf").write_text(LIGHTTPD.format(folder=folder, port=port))
    return [program("lighttpd"), "-D", "-f", str(folder / "lighttpd.conf")]


def _apache(folder: Path, port: int) -> list[str]:
    _with_cgi(folder)
    names = ("mpm_prefork", "authz_core", "alias", "cgi")
    modules = "\n".join(f"LoadModule {name}_module {_APACHE_MODULES}/mod_{name}.so" for name in names)
    (folder / "apache.conf").write_text(APACHE.format(folder=folder, port=port, modules=modules))
    return [program("apache2"), "-X", "-f", str(folder / "apache.conf")]


ORIGINS: dict[str, Callable[[Path, int], list[str]]] = {
    "uvicorn, h11": _uvicorn("h11"),
    "uvicorn, httptools": _uvicorn("httptools"),
    "hypercorn": _hypercorn,
    "gunicorn": _gunicorn,
    "aiohttp": _aiohttp,
    "node": _node,
    "nginx": _nginx,
    "lighttpd": _lighttpd,
    "apache": _apache,
}


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[int]:
    """Starts it; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    log = folder / "output"
    with log.open("wb") as output:
        process = subprocess.Popen(ORIGINS[name](folder, port), cwd=ROOT, stdout=output, stderr=output)
    try:
        end = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, f"{name} ended: {log.read_text()}"
            assert time.monotonic() < end, f"{name} does not listen: {log.read_text()}"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
