"""``prefillwatch serve`` and ``run``: the sidecar in front of a running server, or of one that we start."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import replace

import click

from prefillwatch import __version__, logs
from prefillwatch.commands._settings import settings_options
from prefillwatch.errors import ConfigError
from prefillwatch.listening import reachable_here
from prefillwatch.settings.addresses import ListenAddress
from prefillwatch.settings.declared import Settings
from prefillwatch.supervision import (
    HeldPort,
    Launch,
    Supervisor,
    check_authority,
    free_port,
    prepare,
    refuse_own_address,
)

log = logging.getLogger(__name__)


@click.command()
@settings_options()
def serve(settings: Settings) -> None:
    """Stand in front of a running server and watch its tokens.

    Clients talk to the --listen address as they would to the server. Ends on SIGTERM or Ctrl-C after running answers
    have finished; a second one cuts them.
    """
    sys.exit(supervise(Launch(settings, settings.required_upstream())))


@click.command(context_settings={"allow_interspersed_args": False})  # the command's options are its own
@settings_options()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…", required=True)
def run(settings: Settings, command: tuple[str, ...]) -> None:
    """Start a server and stand in front of it: prefillwatch run -- vllm serve MODEL

    The server gets a free loopback port by --host and --port, unless the command has its own --port or --uds. For a
    command that takes its port in another way, write {port} where it belongs. Output, signals and the exit code pass
    through.
    """
    sys.exit(supervise(launch_of(settings, command)))


def launch_of(settings: Settings, command: tuple[str, ...]) -> Launch:
    """In front of the server that this command starts."""
    held = HeldPort()
    prepared = prepare(command, settings.upstream, free_port, held.take)
    try:
        settings.refuse_own_address(prepared.upstream)
    except ValueError as error:
        raise ConfigError(f"the command's server has no address of its own: {error}") from None
    if prepared.api_key is None:
        prepared = replace(prepared, api_key=os.environ.get("VLLM_API_KEY"))  # which vLLM takes its key from too
    return Launch(settings, prepared.upstream, prepared, held=held)


def supervise(launch: Launch) -> int:
    """Run the sidecar to its end and give the exit code. Raises ListenError, StartError, ConfigError."""
    settings = launch.settings
    logs.configure(settings.log_level, settings.log_format, "prefillwatch")
    check_authority(settings)
    refuse_own_address(settings, launch.upstream)
    supervisor = Supervisor(launch)
    return asyncio.run(supervisor.run(lambda: _say_where_to_look(launch, supervisor)))


def _say_where_to_look(launch: Launch, supervisor: Supervisor) -> None:
    settings = launch.settings
    scheme = "https" if settings.tls_cert else "http"
    data = reachable_here(ListenAddress(settings.listen.host, supervisor.port))
    admin = reachable_here(ListenAddress(settings.admin.host, supervisor.admin_port))
    log.info("version %s: point clients at %s://%s instead of %s", __version__, scheme, data, launch.upstream)
    admin_scheme = "https" if settings.admin_tls_cert else "http"
    log.info("metrics: %s://%s/metrics  live page: %s://%s/", admin_scheme, admin, admin_scheme, admin)
