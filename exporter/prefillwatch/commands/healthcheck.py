"""``prefillwatch healthcheck``: one request to our own admin listener, for containers without curl."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request

import click

from prefillwatch.commands._settings import settings_options
from prefillwatch.errors import StartError
from prefillwatch.listening import reachable_here
from prefillwatch.settings.declared import Settings


@click.command()
@settings_options("admin", "admin_tls_cert", "admin_tls_key")
@click.option(
    "--ready", is_flag=True, help="Ask for readiness (relays accept, upstream is up, not draining), not only for life."
)
def healthcheck(settings: Settings, ready: bool) -> None:
    """Ask a running prefillwatch whether it is well; the exit code is the answer."""
    click.echo(ask(settings, "/readyz" if ready else "/healthz"))


def ask(settings: Settings, path: str, timeout_s: float = 5.0) -> str:
    """The answer's text. Raises StartError when it is not 200 or does not come in time."""
    scheme = "https" if settings.admin_tls_cert else "http"
    url = f"{scheme}://{reachable_here(settings.admin)}{path}"
    # Never through a proxy: it is this machine.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_trusting())
    )
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return str(answer.read(1000).decode(errors="replace").strip())
    except urllib.error.HTTPError as error:
        detail = error.read(1000).decode(errors="replace").strip()
        raise StartError(f"{url} answered {error.code}: {detail}") from None
    except OSError as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise StartError(f"no answer from {url}: {reason}; is prefillwatch running with this admin address?") from None


def _trusting() -> ssl.SSLContext:
    """For a question without a secret, to this machine, where no certificate has the right name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
