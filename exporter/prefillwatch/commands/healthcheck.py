"""``prefillwatch healthcheck``: one request to our own admin listener, for containers without curl."""

from __future__ import annotations

import urllib.error
import urllib.request

import click

from prefillwatch.commands.options import settings_options
from prefillwatch.config import Settings
from prefillwatch.errors import StartError


@click.command()
@settings_options("admin")
@click.option("--ready", is_flag=True, help="Ask for readiness (upstream healthy, not draining), not only for life.")
def healthcheck(settings: Settings, ready: bool) -> None:
    """Ask a running prefillwatch whether it is well; the exit code is the answer."""
    click.echo(ask(settings, "/readyz" if ready else "/healthz"))


def ask(settings: Settings, path: str, timeout_s: float = 5.0) -> str:
    """The answer's text. Raises StartError when it is not 200 or does not come in time."""
    url = f"http://{settings.admin.reachable}{path}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is never wanted to reach ourselves
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return str(answer.read(1000).decode(errors="replace").strip())
    except urllib.error.HTTPError as error:
        detail = error.read(1000).decode(errors="replace").strip()
        raise StartError(f"{url} answered {error.code}: {detail}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise StartError(f"no answer from {url}: {reason}; is prefillwatch running with this admin address?") from None
