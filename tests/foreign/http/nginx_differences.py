"""Which sub-tests of nginx's suite fail behind a relay, and why: all of them on purpose."""

from __future__ import annotations

from typing import Final

KINDS: Final = {
    "connection": "about nginx's connection with its client, which is the relay's now: how long it lives, what is sent "
    "over it and in what order, and how it is closed",
    "address": "about an address: nginx's own, or its client's, which is the relay's",
    "absolute": "a URL as target that contradicts Host: nginx takes the URL, the relay refuses",
    "refused": "refused by the relay and taken by nginx, or refused with another status: fragments, blanks, %00 to "
    "%1f and bytes above 0x7f in the target, TRACE and CONNECT, Transfer-Encoding other than chunked, Expect",
    "line feed": "nginx is made to answer with a bare LF in its head, which is no HTTP/1.1: 502",
    "upgrade": "a protocol upgrade, which the relay answers with 501",
    "fields": "about the fields that the relay writes: X-Forwarded-For and its like, Host where there is none; and "
    "about the number and length of lines",
    "expectation": "100 (Continue) is wanted for a request without a body",
    "whole": "a body that is still coming is looked at: the relay sends a request on once it has all of it",
    "reset": "nginx closes a connection without an answer, be it one between its own servers; the relay says 502",
    "reuse": "the relay's next request comes on a connection whose answer has ended, and on which nginx still does "
    "something else first: updates its cache, or acts after the answer",
    "log": "the log is read as soon as the answer has ended; nginx writes it then, and the relay has passed on the end",
    "waits": "a client of HTTP/1.0 that ends its side has left for nginx; the relay waits for its answer where nothing "
    "is generated, as one that asked with `nc` still reads",
}

#: By file: names of sub-tests (regular expressions that match the whole name), and the kind of reason.
DIFFERENCES: Final[dict[str, list[tuple[str, str]]]] = {
    "access_log.t": [("default log format", "connection"), ("addr", "address"), ("escape - .*", "refused")],
    "access_log_variables.t": [("request", "fields"), ("bytes sent|pipe", "connection")],
    "body.t": [("body next upstream", "reset")],
    "body_chunked.t": [("body chunked next upstream", "reset"), ("transfer encoding (identity|list)", "refused")],
    "geo.t": [("geo proxy.*", "fields")],
    "geo_ipv6.t": [("geo ipv6 ipv4-mapped", "fields")],
    "http_absolute_redirect.t": [("invalid host - using local sockaddr", "address")],
    "http_expect_100_continue.t": [("expect 100 continue.*", "expectation")],
    "http_headers_multi.t": [
        (r"multi \$http_x_forwarded_for", "fields"),
        (r"\$host from server_name", "fields"),
        ("duplicate Expect rejected", "refused"),
    ],
    "http_host.t": [(r"IPvFuture all symbols .*", "refused"), (r".* \(absolute request\)", "absolute")],
    "http_keepalive.t": [("keepalive .*", "connection")],
    "http_keepalive_shutdown.t": [("connection close on exit", "connection")],
    "http_listen.t": [("single", "address")],
    "http_max_headers.t": [("max headers", "fields")],
    "http_method.t": [("trace", "connection"), ("connect no port", "refused")],
    "http_server_name.t": [("empty", "fields")],
    "http_uri.t": [("port|port slash|port args", "absolute"), (".* frag|control escaped", "refused")],
    "limit_conn.t": [("passed", "waits")],
    "limit_rate.t": [("limit_rate|X-Accel-.*|variable.*", "log")],
    "map.t": [("(map|include) .*", "line feed")],
    "post_action.t": [("post action in logs", "reuse")],
    "proxy.t": [("proxy_add_x_forwarded_for", "fields"), ("header time log - client close", "waits")],
    "proxy_bind.t": [("bind (inherit|var|port)", "address")],
    "proxy_bind_transparent_capability.t": [("transparent", "address")],
    "proxy_cache.t": [("non-cacheable head - keepalive", "connection")],
    "proxy_cache_lock_ssi.t": [("no alerts", "waits")],
    "proxy_cache_use_stale.t": [("s-w-r - (updating|not blocked in subrequest)", "reuse")],
    "proxy_cookie.t": [(".* rewrite.*", "absolute")],
    "proxy_non_idempotent.t": [("get|(get|post) non_idempotent", "reset")],
    "proxy_redirect.t": [("(?!no ).*", "absolute")],
    "proxy_request_buffering.t": [("(no )?preread", "whole")],
    "proxy_request_buffering_chunked.t": [("(no )?preread|chunks", "whole")],
    "proxy_request_buffering_ssl.t": [("(no )?preread|no sanitizer errors", "whole")],
    "proxy_upgrade.t": [("handshake.*|log - bytes.*", "upgrade")],
    "proxy_variables.t": [("log - response length.*", "fields")],
    "realip.t": [("realip.*", "fields")],
    "realip_hostname.t": [("realip hostname", "fields")],
    "realip_remote_port.t": [("request.*|realip.*", "address")],
    "slice.t": [("bad range - .*", "reset")],
    "split_clients.t": [("split", "connection")],
    "stub_status.t": [
        ("accepts increased by 1|active|(waiting|reading|writing) state|.* - var (active|waiting)", "connection")
    ],
    "sub_filter_multi.t": [("utf8 match", "refused")],
    "upstream_hash.t": [("all hashed peers - bad.*|upstream name - busy.*", "reset")],
    "upstream_ip_hash.t": [("ip_hash.*", "fields")],
    "upstream_ip_hash_ipv6.t": [("ip_hash.*", "fields")],
    "upstream_keepalive.t": [("keepalive.*", "connection")],
    "userid.t": [("service default v2", "address")],
    "worker_shutdown_timeout.t": [("worker_shutdown_timeout", "connection")],
    "worker_shutdown_timeout_proxy_upgrade.t": [("upgraded connection", "upgrade")],
}
