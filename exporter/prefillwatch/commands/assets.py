"""``prefillwatch assets DIR``: the dashboards, alert rules and deployment files that belong to this version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from prefillwatch.errors import ConfigError, StartError

FOLDERS: Final = ("grafana", "alerts", "deploy")
#: Only for people who change the dashboards, and large; the wheel leaves it out too.
LEFT_OUT: Final = ("grafana/render/", "grafana/screenshots/")
# Where the alerts look for their runbooks as shipped: at the Prometheus that fires them. An address needs no quotes,
# and the generator writes none.
_SHIPPED_RUNBOOKS: Final = re.compile(rb"'?\{\{ \$externalURL \}\}/user/runbooks/(\w+\.md)?'?")


def assets_root() -> Path:
    """The folder that holds `FOLDERS`: inside the installed package, or the source checkout. Raises StartError."""
    package = Path(__file__).parents[1]
    for candidate in (package / "_assets", package.parent.parent):
        if all((candidate / folder).is_dir() for folder in FOLDERS):
            return candidate
    raise StartError("the dashboards, rules and deployment files are missing from this installation; install it again")


def copy_assets(target: Path, overwrite: bool, runbook_base: str | None = None) -> list[Path]:
    """Copy all asset files below ``target`` and return their paths. Raises ConfigError before anything is written.

    ``runbook_base``: the address that alerts get for their runbooks, instead of one at their Prometheus.
    """
    root = assets_root()
    base = None if runbook_base is None else _address(runbook_base)
    contents = {target / path: _content(root, path, base) for path in asset_paths(root)}
    changed = [copy for copy, content in contents.items() if copy.exists() and copy.read_bytes() != content]
    if changed and not overwrite:
        raise ConfigError(
            f"{changed[0]} exists and differs ({len(changed)} such files); choose another folder or add --overwrite"
        )
    try:
        for copy, content in contents.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write to {target}: {error.strerror}; choose a folder you may write to") from None
    return list(contents)


def asset_paths(root: Path) -> list[Path]:
    """Relative to ``root``, in order."""
    found = (path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.is_file())
    return [path for path in (each.relative_to(root) for each in found) if _is_asset(path)]


def _is_asset(path: Path) -> bool:
    return "__pycache__" not in path.parts and not path.as_posix().startswith(LEFT_OUT)


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s'\"{}]+", text):
        raise ConfigError(
            f"{text!r} is no address of runbooks; write https://HOST/PATH/ where alerts/runbooks is served"
        )
    return text if text.endswith("/") else f"{text}/"


def _content(root: Path, path: Path, runbook_base: str | None) -> bytes:
    content = (root / path).read_bytes()
    if runbook_base is not None and path.parts[0] == "alerts" and path.suffix in (".yml", ".yaml"):
        return _SHIPPED_RUNBOOKS.sub(lambda found: runbook_base.encode() + (found[1] or b""), content)
    return content


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--overwrite", is_flag=True, help="Replace files that are there and differ.")
@click.option(
    "--runbook-base",
    metavar="URL",
    help="Where you serve alerts/runbooks; alerts link there instead of to their Prometheus (see alerts/README.md).",
)
def assets(directory: Path, overwrite: bool, runbook_base: str | None) -> None:
    """Write grafana/, alerts/ and deploy/ to DIR."""
    copy_assets(directory, overwrite, runbook_base)
    click.echo(f"wrote {', '.join(f'{folder}/' for folder in FOLDERS)} to {directory}")
