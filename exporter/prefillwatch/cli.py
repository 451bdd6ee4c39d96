"""The ``prefillwatch`` command. Commands are imported when they are used, so that ``--help`` is quick."""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from typing import Any, Final

import click

from prefillwatch import __version__
from prefillwatch.errors import ERROR_PREFIX, PrefillwatchError

#: name: (where the command is, what it does)
_COMMANDS: Final = {
    "serve": ("prefillwatch.commands.serve:serve", "Stand in front of a running server and watch its tokens."),
    "run": ("prefillwatch.commands.serve:run", "Start 'vllm serve …' (or another server) and stand in front of it."),
    "demo": ("prefillwatch.commands.lab:demo", "Simulated vLLM, sidecar and traffic together; no GPU needed."),
    "sim": ("prefillwatch.commands.lab:sim", "A simulated vLLM server alone."),
    "probe": ("prefillwatch.commands.probe:probe", "Freeze a server on purpose: long prompts into steady streams."),
    "sweep": ("prefillwatch.commands.sweep:sweep", "Start a server with several settings and say what each costs."),
    "trace": ("prefillwatch.commands.trace:trace", "Engine steps and kernels in a torch profiler trace of vLLM."),
    "check": ("prefillwatch.commands.check:check", "Validate the settings, reach upstream, name what is missing."),
    "doctor": ("prefillwatch.commands.doctor:doctor", "Say in words which symptoms a running server shows, and why."),
    "record": ("prefillwatch.commands.record:record", "Do what 'serve' does, and record to a file what is seen."),
    "replay": ("prefillwatch.commands.replay:replay", "Metrics, incidents and the page from such a file."),
    "explain": ("prefillwatch.commands.explain:explain", "The story of one incident, with a picture, as Markdown."),
    "assets": (
        "prefillwatch.commands.assets:assets",
        "Write dashboards, alert rules and deployment files to a folder.",
    ),
    "healthcheck": ("prefillwatch.commands.healthcheck:healthcheck", "Ask a running prefillwatch whether it is well."),
}


class _LazyGroup(click.Group):
    """A group that knows the one-line help of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            nearest = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"the commands are {', '.join(_COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow must not cost the answer
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PrefillwatchError as error:
            for line in str(error).splitlines():
                click.echo(f"{ERROR_PREFIX}{line}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="prefillwatch", message="%(prog)s %(version)s")
def main() -> None:
    """Time every streamed token of a vLLM server and name the prompt that froze the others.

    \b
    See it work:             prefillwatch demo
    In front of a server:    prefillwatch serve --upstream http://127.0.0.1:8000
    Start vLLM and watch it: prefillwatch run -- vllm serve MODEL
    """
