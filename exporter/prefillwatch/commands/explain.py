"""``prefillwatch explain``: the story of one incident, for people, from a running sidecar or a recording."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import click
import httpx
import msgspec

from prefillwatch.commands._options import Value
from prefillwatch.commands._output import check_writable, write
from prefillwatch.doctor.watch import Access, Address, address_of
from prefillwatch.engine.errors import FetchError
from prefillwatch.engine.fetch import Fetcher
from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.replay import Replay, ReplayClock
from prefillwatch.settings.kinds import LOGIN_FILE, SECRET_FILE
from prefillwatch.story import Account, UnknownIncidentError, find, markdown, picture, tell

_MOST_JSON: Final = 4 << 20
_TIMEOUT_S: Final = 10.0
#: Accounts kept while a recording is played: as many as there are incidents in the API.
_MOST_ACCOUNTS: Final = 1000


class ExplainError(PrefillwatchError):
    """There is nothing to tell from there."""


@click.command()
@click.argument("name", metavar="[INCIDENT|REQUEST-ID]", default="")
@click.option(
    "--from",
    "source",
    default="http://127.0.0.1:9843",
    show_default=True,
    metavar="URL|FILE",
    help="Admin address of a running sidecar, or what 'record' or the flight recorder wrote.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it there, and the picture beside it as FILE.svg.",
)
@click.option("--inline", is_flag=True, help="The picture inside the Markdown, not beside it.")
@click.option(
    "--bearer-token-file", "token", type=Value(SECRET_FILE.read, SECRET_FILE.metavar), help="Send this token."
)
@click.option(
    "--basic-auth-file", "login", type=Value(LOGIN_FILE.read, LOGIN_FILE.metavar), help="Send this USER:PASSWORD."
)
@click.option("--ca", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Trust this CA (PEM).")
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
def explain(
    name: str,
    source: str,
    output: Path | None,
    inline: bool,
    token: str | None,
    login: str | None,
    ca: str | None,
    insecure: bool,
) -> None:
    """Tell one incident as a person would, as Markdown: what happened step by step, who lost what, what speaks for and
    against the verdict, and what would have helped.

    The id is of an incident (the page, /api/incidents and the log have it), or of a request that had a part in one.
    Without one, the newest is told.
    """
    beside = output.with_name(f"{output.name}.svg") if output is not None and not inline else None
    check_writable(output=output)
    if _is_file(source):
        account, where = _from_recording(Path(source).expanduser(), name), Path(source).name
    else:
        access = Access(token or "", login or "", ca or "", insecure)
        address = address_of(source)
        account, where = asyncio.run(_from_sidecar(address, access, name)), address.origin
    blocks = tell(account, where)
    text = markdown(blocks, "" if inline else beside.name if beside is not None else None)
    if output is None:
        click.echo(text, nl=False)
        return
    write(output, text)
    if beside is not None:
        write(beside, picture(account))


def _is_file(source: str) -> bool:
    """Rather than an address: it is there, or it looks like one."""
    return "://" not in source and (os.sep in source or source.endswith(".pfw") or Path(source).expanduser().exists())


def _find(accounts: list[Account], name: str, where: str) -> Account:
    try:
        return find(accounts, name)
    except UnknownIncidentError as error:
        raise ExplainError(f"{where}: {error}") from None


def _from_recording(path: Path, name: str) -> Account:
    """Raises RecordingError, ExplainError."""
    clock = ReplayClock()
    with RecordingFile(path) as file:
        replay = Replay(file.header, clock)
        replay.observation.kept_accounts.keep(_MOST_ACCOUNTS)
        for entry in file.entries():
            replay.play(entry)
    return _find(replay.observation.accounts(), name, path.name)


async def _from_sidecar(address: Address, access: Access, name: str) -> Account:
    """Raises ExplainError, ConfigError."""
    try:
        fetcher = Fetcher(
            address.origin,
            timeout_s=_TIMEOUT_S,
            api_key=access.bearer_token,
            basic_auth=access.basic_auth or address.login,
            ca_file=access.ca_file,
            insecure=access.insecure,
        )
    except (httpx.InvalidURL, OSError) as error:
        raise ConfigError(f"--from {address.origin}: {error}") from None
    query = "?" + urlencode({"id": name}) if name else ""
    try:
        answer = await fetcher.get(f"{address.api}/api/explain{query}", limit=_MOST_JSON)
    except FetchError as error:
        raise ExplainError(
            f"no answer from {address.origin} ({error}); give the admin address of a running prefillwatch, or a "
            "recording, with --from"
        ) from None
    finally:
        await fetcher.close()
    if answer.status == 200:
        try:
            return msgspec.json.decode(answer.body, type=Account)
        except msgspec.DecodeError:
            raise ExplainError(f"{address.origin} answers, but not as prefillwatch does") from None
    if answer.status in (401, 403):
        raise ExplainError(f"{address.origin} wants credentials; give --bearer-token-file or --basic-auth-file")
    raise ExplainError(f"{address.origin}: {_error_of(answer.body) or f'answers {answer.status}'}")


def _error_of(body: bytes) -> str:
    """What our admin listener says of it. One that has no such page is older than this."""
    try:
        told = msgspec.json.decode(body, type=dict[str, str]).get("error", "")
    except msgspec.DecodeError:
        return ""
    return f"{told}: it is older than this command" if told.startswith("nothing is served") else told
