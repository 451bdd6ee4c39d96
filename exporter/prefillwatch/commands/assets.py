"""``prefillwatch assets DIR``: the dashboards, alert rules and deployment files that belong to this version."""

from __future__ import annotations

from pathlib import Path

import click

from prefillwatch.errors import ConfigError, StartError

FOLDERS = ("grafana", "alerts", "deploy")


def assets_root() -> Path:
    """The folder that holds `FOLDERS`: inside the installed package, or the source checkout. Raises StartError."""
    package = Path(__file__).parents[1]
    for candidate in (package / "_assets", package.parent.parent):
        if all((candidate / folder).is_dir() for folder in FOLDERS):
            return candidate
    raise StartError("the dashboards, rules and deployment files are missing from this installation; install it again")


def copy_assets(target: Path, overwrite: bool) -> list[Path]:
    """Copy all asset files below ``target`` and return their paths. Raises ConfigError before anything is written."""
    root = assets_root()
    sources = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if _is_asset(path)]
    copies = {source: target / source.relative_to(root) for source in sources}
    changed = [copy for source, copy in copies.items() if copy.exists() and copy.read_bytes() != source.read_bytes()]
    if changed and not overwrite:
        raise ConfigError(
            f"{changed[0]} exists and differs ({len(changed)} such files); choose another folder or add --overwrite"
        )
    try:
        for source, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot write to {target}: {error.strerror}; choose a folder you may write to") from None
    return list(copies.values())


def _is_asset(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--overwrite", is_flag=True, help="Replace files that are there and differ.")
def assets(directory: Path, overwrite: bool) -> None:
    """Write grafana/, alerts/ and deploy/ to DIR."""
    copies = copy_assets(directory, overwrite)
    click.echo(f"wrote {len(copies)} files to {directory}: {', '.join(FOLDERS)}")
