"""Cases that Http11Probe's sources have and its published results do not have yet, as its sources make them.

Each is what is sent on one connection, and what is right: ``refused`` for a 400 and the end of the connection with no
second answer, or bytes of a 200. What only the origin decides (405, Allow, 204) is not ours and left out.
"""

from __future__ import annotations

_HOST = b" HTTP/1.1\r\nHost: localhost:8080\r\n"
_POST = b"POST /" + _HOST
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_GET = b"GET /" + _HOST + b"\r\n"


def _poison(framing: bytes, body: bytes) -> list[bytes]:
    """A request with two readings, and what one of them would take for the next request."""
    return [_POST + framing % len(body) + b"\r\n", body]


_SMUGGLED = b"0\r\n\r\n" + _GET
_INNER = b"GET /" + _HOST + b"Content-Length: 7\r\n\r\n"

NEWER: dict[str, tuple[list[bytes], bytes | str]] = {
    "COMP-RANGE-POST": ([_POST + b"Content-Length: 5\r\nRange: bytes=0-10\r\n\r\nhello"], b"ok"),
    "COMP-HEAD-NO-BODY": ([b"HEAD /" + _HOST + b"\r\n"], b"Content-Length: 2\r\n\r\n"),
    "COMP-UNKNOWN-METHOD": ([b"FOOBAR /" + _HOST + b"\r\n"], b"ok"),
    "COMP-NO-1XX-HTTP10": (
        [b"POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"],
        b"HTTP/1.1 200 OK",
    ),
    "COMP-VERSION-CASE": ([b"GET / http/1.1\r\nHost: localhost:8080\r\n\r\n"], "refused"),
    "COMP-LONG-URL-OK": ([b"GET /" + b"a" * 7900 + _HOST + b"\r\n"], b"ok"),
    "COMP-SPACE-IN-TARGET": ([b"GET /pa th" + _HOST + b"\r\n"], "refused"),
    "COMP-DUPLICATE-CT": (
        [_POST + b"Content-Length: 5\r\nContent-Type: text/plain\r\nContent-Type: text/html\r\n\r\nhello"], b"ok"),
    "SMUG-CHUNK-EXT-INVALID-TOKEN": ([_POST + _CHUNKED + b"\r\n5;bad[=x\r\nhello\r\n0\r\n\r\n"], "refused"),
    "SMUG-CHUNK-SIZE-PLUS": ([_POST + _CHUNKED + b"\r\n+5\r\nhello\r\n0\r\n\r\n"], "refused"),
    "SMUG-CHUNK-SIZE-TRAILING-OWS": ([_POST + _CHUNKED + b"\r\n5 \r\nhello\r\n0\r\n\r\n"], "refused"),
    "SMUG-CLTE-CONN-CLOSE": ([_POST + b"Content-Length: 5\r\n" + _CHUNKED + b"\r\n0\r\n\r\n", _GET], "refused"),
    "SMUG-TECL-CONN-CLOSE": ([_POST + _CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n", _GET], "refused"),
    "SMUG-CLTE-DESYNC": ([_POST + b"Content-Length: 6\r\n" + _CHUNKED + b"\r\n0\r\n\r\nX", _GET], "refused"),
    "SMUG-TECL-DESYNC": ([_POST + _CHUNKED + b"Content-Length: 30\r\n\r\n0\r\n\r\nX", _GET], "refused"),
    "SMUG-CLTE-SMUGGLED-GET": (_poison(b"Content-Length: %d\r\n" + _CHUNKED, _SMUGGLED), "refused"),
    "SMUG-CLTE-SMUGGLED-GET-TE-TRAILING-SPACE": (
        _poison(b"Content-Length: %d\r\nTransfer-Encoding: chunked \r\n", _SMUGGLED), "refused"),
    "SMUG-CLTE-SMUGGLED-GET-TE-LEADING-COMMA": (
        _poison(b"Content-Length: %d\r\nTransfer-Encoding: , chunked\r\n", _SMUGGLED), "refused"),
    "SMUG-CLTE-SMUGGLED-GET-TE-CASE-MISMATCH": (
        _poison(b"Content-Length: %d\r\nTransfer-Encoding: Chunked\r\n", _SMUGGLED), "refused"),
    "SMUG-CLTE-SMUGGLED-GET-TE-OBS-FOLD": (
        _poison(b"Content-Length: %d\r\nTransfer-Encoding:\r\n chunked\r\n", _SMUGGLED), "refused"),
    "SMUG-TE-DUPLICATE-HEADERS-SMUGGLED-GET": (
        _poison(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: %d\r\n", _SMUGGLED),
        "refused"),
    "SMUG-TECL-SMUGGLED-GET": (
        [_POST + _CHUNKED + b"Content-Length: 4\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(_INNER), _INNER)], "refused"),
    "SMUG-DUPLICATE-CL-SMUGGLED-GET": (
        _poison(b"Content-Length: 4\r\nContent-Length: %d\r\n", b"PING" + _GET), "refused"),
    "SMUG-OPTIONS-TE-OBS-FOLD": (
        [b"OPTIONS /" + _HOST + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\nhello", _GET], "refused"),
    "SMUG-CHUNK-INVALID-SIZE-DESYNC": ([_POST + _CHUNKED + b"\r\n+0\r\n\r\nX", _GET], "refused"),
    "NORM-UNDERSCORE-CL": ([_POST + b"Content-Length: 11\r\nContent_Length: 99\r\n\r\nhello world"], "refused"),
    "NORM-SP-BEFORE-COLON-CL": ([_POST + b"Content-Length: 11\r\nContent-Length : 5\r\n\r\nhello world"], "refused"),
    "NORM-TAB-IN-NAME": ([_POST + b"Content-Length: 11\r\nContent\tLength: 99\r\n\r\nhello world"], "refused"),
    "NORM-UNDERSCORE-TE": ([_POST + b"Content-Length: 11\r\nTransfer_Encoding: chunked\r\n\r\nhello world"], "refused"),
}  # fmt: skip
