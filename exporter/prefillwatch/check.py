"""``prefillwatch check``: are the settings right, does upstream answer, and what will be missing?"""

from __future__ import annotations

import enum
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click
import httpx

from prefillwatch.certificates import check_certificates
from prefillwatch.config import Settings
from prefillwatch.errors import ListenError
from prefillwatch.listening import bind_listeners
from prefillwatch.options import settings_options

_TIMEOUT_S = 5.0


class Verdict(enum.Enum):
    """How much a finding matters."""

    OK = "ok"
    MISSING = "missing"  # prefillwatch works, and shows less
    FAILED = "failed"  # prefillwatch would not work


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value:<8}{self.subject}: {self.text}"


@click.command()
@settings_options()
def check(settings: Settings) -> None:
    """Validate the settings, reach upstream, name what is missing. The exit code is 1 when serve would not work."""
    upstream = settings.required_upstream()
    check_certificates(settings)
    failed = False
    click.echo(Finding(Verdict.OK, "settings", "valid"))
    for finding in (*look_at_addresses(settings), *look_at_upstream(upstream, settings)):
        click.echo(finding)
        failed = failed or finding.verdict is Verdict.FAILED
    sys.exit(1 if failed else 0)


def look_at_addresses(settings: Settings) -> Iterator[Finding]:
    """Whether we could listen. An address in use is no failure: that may be prefillwatch itself."""
    for key, address in (("listen", settings.listen), ("admin", settings.admin)):
        try:
            (sockets,) = bind_listeners(address, 1, key)
        except ListenError as error:
            in_use = "in use" in str(error)
            yield Finding(Verdict.MISSING if in_use else Verdict.FAILED, key, str(error))
        else:
            for opened in sockets:
                opened.close()
            yield Finding(Verdict.OK, key, f"{address} is free")


def look_at_upstream(
    upstream: str, settings: Settings, transport: httpx.BaseTransport | None = None
) -> Iterator[Finding]:
    """Ask upstream for its health, its models and its metrics."""
    with _client(upstream, settings, transport) as client:
        health = _look_at_health(client, upstream)
        yield health
        if health.verdict is Verdict.OK:
            yield _look_at_models(client)
            yield from _look_at_metrics(client)


def _client(upstream: str, settings: Settings, transport: httpx.BaseTransport | None) -> httpx.Client:
    verify: ssl.SSLContext | bool = not settings.upstream_insecure
    if verify and settings.upstream_ca:
        verify = ssl.create_default_context(cafile=str(settings.upstream_ca))
    if upstream.startswith("unix:"):
        transport = transport or httpx.HTTPTransport(uds=upstream.removeprefix("unix:"))
        upstream = "http://localhost"
    key = settings.upstream_api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    # trust_env off: a proxy from the environment would be asked for a server that is next to us.
    return httpx.Client(
        base_url=upstream, verify=verify, headers=headers, timeout=_TIMEOUT_S, trust_env=False, transport=transport
    )


def _look_at_health(client: httpx.Client, upstream: str) -> Finding:
    try:
        answer = client.get("/health")
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        return Finding(Verdict.FAILED, "upstream", f"no answer from {upstream} ({why}); is the server up, and there?")
    if answer.status_code in (200, 404):  # a server without /health is there all the same
        return Finding(Verdict.OK, "upstream", f"{upstream} answers")
    text = f"{upstream}/health answers {answer.status_code}; the server is not healthy, or it is another one"
    return Finding(Verdict.FAILED, "upstream", text)


def _look_at_models(client: httpx.Client) -> Finding:
    answer = _get(client, "/v1/models")
    if answer is not None and answer.status_code in (401, 403):
        return Finding(Verdict.MISSING, "models", "the server wants a key for /v1/models; set upstream_api_key")
    names = _model_names(answer)
    if not names:
        text = "/v1/models names none; all series will carry the model name 'other'"
        return Finding(Verdict.MISSING, "models", text)
    return Finding(Verdict.OK, "models", ", ".join(names))


def _model_names(answer: httpx.Response | None) -> list[str]:
    try:
        return [str(model["id"]) for model in answer.json()["data"]] if answer is not None else []
    except (ValueError, KeyError, TypeError):
        return []


def _look_at_metrics(client: httpx.Client) -> Iterator[Finding]:
    answer = _get(client, "/metrics")
    if answer is None or answer.status_code != 200:
        status = "no answer" if answer is None else f"status {answer.status_code}"
        text = f"{status} from /metrics; KV cache, queue and preemptions will not be shown (latencies will)"
        yield Finding(Verdict.MISSING, "metrics", text)
        return
    yield Finding(Verdict.OK, "metrics", f"/metrics answers with {len(answer.content)} bytes")


def _get(client: httpx.Client, path: str) -> httpx.Response | None:
    try:
        return client.get(path)
    except httpx.HTTPError:
        return None
