"""Where other people's cases lie, and how their files are read. Nothing is made up here and nothing is left out."""

from __future__ import annotations

import functools
import gzip
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
#: Names the folder with the files; without it they are looked for beside the checkout.
VARIABLE = "PWTEST_FOREIGN"
NEEDED = {
    "http11probe.js.gz": "the published results of Http11Probe (github.com/MDA2AV/Http11Probe), with its requests",
    "h2o-http1-corpus.tar.gz": "fuzz/http1-corpus of github.com/h2o/h2o",
    "llhttp-cases.tar.gz": "test/request and test/response of github.com/nodejs/llhttp",
}


def file(name: str) -> Path:
    """A file of other people. Where it is missing the test fails and says what is needed."""
    folder = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "foreign") / "http"
    path = folder / name
    assert path.is_file(), f"{path} is missing: {NEEDED[name]}. Put it there, or name another folder by {VARIABLE}."
    return path


class Case(NamedTuple):
    name: str
    data: bytes


@functools.cache
def h2o() -> list[Case]:
    """Requests that h2o's fuzzer found worth keeping."""
    with tarfile.open(file("h2o-http1-corpus.tar.gz")) as archive:
        return [
            Case(f"h2o:{member.name.rpartition('/')[2]}", opened.read())
            for member in sorted(archive.getmembers(), key=lambda member: member.name)
            if member.isfile() and (opened := archive.extractfile(member)) is not None
        ]


@functools.cache
def llhttp(kind: str) -> list[Case]:
    """Every example in llhttp's descriptions of requests or of responses (``kind``)."""
    cases = []
    with tarfile.open(file("llhttp-cases.tar.gz")) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if not member.isfile() or f"/{kind}/" not in member.name:
                continue
            opened = archive.extractfile(member)
            assert opened is not None
            title = member.name.rpartition("/")[2].removesuffix(".md")
            for number, found in enumerate(_EXAMPLE.findall(opened.read().decode())):
                cases.append(Case(f"llhttp:{title}:{number}", _unescaped(found)))
    return cases


_EXAMPLE = re.compile(r"^```http\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([rntf]))")
_ESCAPED = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"f": b"\f"}


def _unescaped(text: str) -> bytes:
    """As llhttp's own tests read it: a backslash joins lines, lines end with CR LF, escapes stand for their bytes."""
    joined = text.replace("\\\n", "").replace("\n", "\r\n").encode()
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else _ESCAPED[found[2]], joined)


class ProbeCase(NamedTuple):
    name: str
    request: bytes
    expected: str
    scored: bool
    verdicts: dict[tuple[int | None, bool], str]  # (status, server closed or stayed silent) -> what others got for it


@functools.cache
def http11probe() -> list[ProbeCase]:
    """The cases of Http11Probe, with what it said of the answers that others gave."""
    text = gzip.decompress(file("http11probe.js.gz").read_bytes()).decode()
    servers: list[dict[str, Any]] = json.loads(text[text.index("{") :].rstrip().rstrip(";"))["servers"]
    verdicts: dict[str, dict[tuple[int | None, bool], str]] = {}
    for server in servers:
        for result in server["results"]:
            closed = result["connectionState"] == "ClosedByServer"
            verdicts.setdefault(result["id"], {})[result["statusCode"], closed] = result["verdict"]
    return [
        ProbeCase(
            result["id"],
            LOST_BYTES.get(result["id"]) or result["rawRequest"].encode("latin-1"),
            result["expected"],
            result["scored"],
            verdicts[result["id"]],
        )
        for result in servers[0]["results"]
    ]


_HOST = b" HTTP/1.1\r\nHost: localhost:8080\r\n"
#: Where the published form shows a question mark for a byte that is no ASCII, or ends after 8,192 bytes: the request as
#: the suite's source makes it.
LOST_BYTES = {
    "MAL-CONTROL-CHARS-HEADER": b"GET /" + _HOST + b"X-Test: abc\x07\x08\x0bdef\r\n\r\n",
    "MAL-NON-ASCII-HEADER-NAME": b"GET /" + _HOST + b"X-T\xc3\xabst: value\r\n\r\n",
    "MAL-NON-ASCII-URL": b"GET /caf\xc3\xa9" + _HOST + b"\r\n",
    "MAL-URL-OVERLONG-UTF8": b"GET /\xc0\xaf" + _HOST + b"\r\n",
    "MAL-LONG-URL": b"GET /" + b"A" * 100_000 + _HOST + b"\r\n",
    "MAL-LONG-HEADER-VALUE": b"GET /" + _HOST + b"X-Big: " + b"B" * 100_000 + b"\r\n\r\n",
    "MAL-LONG-HEADER-NAME": b"GET /" + _HOST + b"A" * 100_000 + b": val\r\n\r\n",
    "MAL-MANY-HEADERS": b"GET /" + _HOST + b"".join(b"X-H-%d: value\r\n" % i for i in range(10_000)) + b"\r\n",
    "MAL-LONG-METHOD": b"A" * 100_000 + b" /" + _HOST + b"\r\n",
    "MAL-CHUNK-EXT-64K": b"POST /%bTransfer-Encoding: chunked\r\n\r\n5;ext=%b\r\nhello\r\n0\r\n\r\n"
    % (_HOST, b"a" * 65_536),
}
