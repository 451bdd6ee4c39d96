"""``prefillwatch check``: are the settings right, does upstream answer, and what will be missing?"""

from __future__ import annotations

import asyncio
import enum
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from prefillwatch.commands._settings import settings_options
from prefillwatch.engine import model_list
from prefillwatch.engine.errors import FetchError, FetchReason, PageError
from prefillwatch.engine.fetch import Answer, Fetcher
from prefillwatch.engine.kinds import PageSample, read_page
from prefillwatch.engine.poller import LARGEST_PAGE, elsewhere_hint
from prefillwatch.errors import AddressInUseError, ConfigError, ListenError
from prefillwatch.listening import bind_listeners
from prefillwatch.relay.bodies import BodyShares
from prefillwatch.relay.reactor import raise_descriptor_limit
from prefillwatch.relay.room import most_clients
from prefillwatch.settings.addresses import ListenAddress
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.quantities import format_size
from prefillwatch.settings.views import observer_view
from prefillwatch.supervision import check_certificates, refuse_own_address
from prefillwatch.wire.printable import printable

_WANTS_KEY: Final = (401, 403)
#: What one relay is built for.
_MANY_CLIENTS: Final = 10_000
_LARGEST_HEALTH: Final = 1 << 20


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
    sys.exit(asyncio.run(_report(upstream, settings)))


async def _report(upstream: str, settings: Settings) -> int:
    findings = [
        Finding(Verdict.OK, "settings", "valid"),
        *look_at_addresses(settings),
        *look_at_socket(settings),
        *look_at_limits(settings),
    ]
    for finding in findings:
        click.echo(finding)
    if (loop := look_for_loop(upstream, settings)) is not None:
        click.echo(loop)
        return 1
    async for finding in look_at_upstream(upstream, settings):
        findings.append(finding)
        click.echo(finding)
    return int(any(finding.verdict is Verdict.FAILED for finding in findings))


def look_at_addresses(settings: Settings) -> Iterator[Finding]:
    """Whether we could listen."""
    yield _look_at_address("listen", settings.listen)
    yield _look_at_address("admin", settings.admin)


def _look_at_address(key: str, address: ListenAddress) -> Finding:
    try:
        (sockets,) = bind_listeners(address, 1, key)
    except AddressInUseError as error:
        return Finding(Verdict.FAILED, key, f"{error} (unless it is prefillwatch itself that runs there)")
    except ListenError as error:
        return Finding(Verdict.FAILED, key, str(error))
    for opened in sockets:
        opened.close()
    return Finding(Verdict.OK, key, f"{address} is free")


def look_at_socket(settings: Settings) -> Iterator[Finding]:
    """Whether the plugin inside vLLM could reach us; without it, prefillwatch sees all but the engine's own clock."""
    path = settings.engine_socket
    if path is None:
        return
    folder = path.absolute().parent
    if path.exists() and not path.is_socket():
        yield Finding(Verdict.MISSING, "engine_socket", f"{path} is there, and no socket; choose another path")
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = "cannot be written to" if folder.is_dir() else "is no folder"
        yield Finding(Verdict.MISSING, "engine_socket", f"{folder} {reason}; choose another path")
    else:
        yield Finding(Verdict.OK, "engine_socket", f"{path} can be listened on")


def look_at_limits(settings: Settings) -> Iterator[Finding]:
    """Whether the system's limits allow as many connections as one relay is built for."""
    descriptors = raise_descriptor_limit()
    clients, wanted_clients = most_clients(descriptors), -(-settings.max_clients // settings.relays) or _MANY_CLIENTS
    if clients < wanted_clients:
        text = (
            f"{descriptors} are enough for {clients} clients of a relay, not for {wanted_clients}; raise the limit "
            "(ulimit -n, LimitNOFILE=, --ulimit nofile=), or further clients wait until others leave"
        )
        yield Finding(Verdict.MISSING, "descriptors", text)
    else:
        yield Finding(Verdict.OK, "descriptors", f"{descriptors} are enough for {clients} clients of a relay")
    every = settings.relays * BodyShares.of(settings.max_bodies, settings.relays, settings.max_body).total
    if every > settings.max_bodies:
        relays = "1 relay" if settings.relays == 1 else f"{settings.relays} relays"
        text = (
            f"{relays} with room for one body of {format_size(settings.max_body)} each may hold {format_size(every)}, "
            f"more than max_bodies ({format_size(settings.max_bodies)}) says; lower max_body, or have the memory"
        )
        yield Finding(Verdict.MISSING, "bodies", text)


def look_for_loop(upstream: str, settings: Settings) -> Finding | None:
    """Whether upstream is this sidecar itself; then there is no server to ask."""
    try:
        refuse_own_address(settings, upstream)
    except ConfigError as error:
        return Finding(Verdict.FAILED, "upstream", str(error))
    return None


async def look_at_upstream(upstream: str, settings: Settings) -> AsyncIterator[Finding]:
    """Ask upstream for its health, its models and its metrics, as the observer will."""
    view = observer_view(settings, tap_fds=(), control_fd=-1, upstream=upstream)
    key, ca_file, insecure = view.upstream_api_key, view.upstream_ca, view.upstream_insecure
    fetcher = Fetcher(upstream, api_key=key, ca_file=ca_file, insecure=insecure)
    try:
        health = await _look_at_health(fetcher, upstream, has_key=bool(key))
        yield health
        if health.verdict is Verdict.OK:
            yield await _look_at_models(fetcher)
            pages, path = Fetcher.of_page(
                upstream, view.upstream_metrics_url, api_key=key, ca_file=ca_file, insecure=insecure
            )
            try:
                for finding in await _look_at_metrics(pages, path):
                    yield finding
            finally:
                await pages.close()
    finally:
        await fetcher.close()


async def _look_at_health(fetcher: Fetcher, upstream: str, *, has_key: bool) -> Finding:
    try:
        answer = await fetcher.get("/health", limit=_LARGEST_HEALTH)
    except FetchError as error:
        question = "is the server up, and there?"
        if "SSL" in str(error):
            question = "does it speak TLS there, with a certificate that upstream_ca or the system trusts?"
        return Finding(Verdict.FAILED, "upstream", f"no answer from {upstream} ({error}); {question}")
    if answer.status in (200, 404):  # a server without /health still answers
        return Finding(Verdict.OK, "upstream", f"{upstream} answers")
    if answer.status in _WANTS_KEY:
        remedy = "upstream_api_key is not the one" if has_key else "set upstream_api_key"
        text = f"{upstream}/health answers {answer.status}: the server wants a key; {remedy}"
        return Finding(Verdict.FAILED, "upstream", text)
    text = f"{upstream}/health answers {answer.status}: the server is not healthy, or it is another one"
    return Finding(Verdict.FAILED, "upstream", text)


async def _look_at_models(fetcher: Fetcher) -> Finding:
    answer = await _get(fetcher, model_list.PATH, model_list.LARGEST_BYTES)
    if isinstance(answer, Answer) and answer.status in _WANTS_KEY:
        return Finding(Verdict.MISSING, "models", "the server wants a key for /v1/models; set upstream_api_key")
    names = _model_names(answer)
    if not names:
        return Finding(Verdict.MISSING, "models", '/v1/models names none; every series will have model="other"')
    return Finding(Verdict.OK, "models", ", ".join(map(printable, names)))


def _model_names(answer: Answer | FetchError) -> list[str]:
    try:
        body = answer.body if isinstance(answer, Answer) else b""
        return [model.id for model in model_list.served_models(body)]
    except msgspec.DecodeError:
        return []


async def _look_at_metrics(fetcher: Fetcher, path: str) -> list[Finding]:
    answer = await _get(fetcher, path, LARGEST_PAGE)
    if isinstance(answer, Answer) and answer.status != 200:
        answer = FetchError(FetchReason.HTTP_STATUS, f"{path} answers {answer.status}", answer.status)
    if isinstance(answer, FetchError):
        words = f"{answer}; no KV cache, queue and preemptions (latencies all the same){elsewhere_hint(answer)}"
        return [Finding(Verdict.MISSING, "metrics", words)]
    try:
        return list(_look_at_page(read_page(answer.body)))
    except PageError as error:
        words = f"{error}; no KV cache, queue and preemptions{elsewhere_hint(error)}"
        return [Finding(Verdict.MISSING, "metrics", words)]


def _look_at_page(page: PageSample) -> Iterator[Finding]:
    if page.left_out:
        words = f"the page has {page.left_out} more series than are read; figures are incomplete"
        yield Finding(Verdict.MISSING, "metrics", words)
    if not page.engines:
        kind = "of no server kind known here" if page.server == "unknown" else f"of {page.server}, without gauges"
        yield Finding(Verdict.MISSING, "metrics", f"the page is {kind}; no KV cache and queue")
        return
    # Our requests would keep awake, or load again, a model that sleeps when idle.
    sleeps = "; if its model is meant to sleep, set scrape_idle to false" if page.server == "llamacpp" else ""
    yield Finding(Verdict.OK, "metrics", f"{page.server} with {len(page.engines)} engine(s){sleeps}")
    wanted = {
        "KV cache usage": any(engine.kv_usage is not None for engine in page.engines),
        "KV cache capacity": any(engine.capacity_tokens for engine in page.engines),
        "running and waiting requests": any(engine.running is not None for engine in page.engines),
        "preemptions": any(engine.preemptions_total is not None for engine in page.engines),
    }
    absent = [name for name, there in wanted.items() if not there]
    if absent:
        yield Finding(Verdict.MISSING, "metrics", f"the page does not report {', '.join(absent)}")


async def _get(fetcher: Fetcher, path: str, limit: int) -> Answer | FetchError:
    try:
        return await fetcher.get(path, limit=limit)
    except FetchError as error:
        return error
