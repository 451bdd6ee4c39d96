"""Which settings a sweep tries: sets of flags that are added to the server's command. Pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prefillwatch.errors import ConfigError

MOST_SETTINGS: Final = 64
AS_GIVEN: Final = "(as given)"
FLAGS_PLACEHOLDER: Final = "{flags}"
_FLAG_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Setting:
    """Flags that the server is started with, beyond those in the command. None: the command as it was given."""

    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The flags as one would type them."""
        return shlex.join(self.flags) or AS_GIVEN


#: Tried where the user names nothing: chunked prefill off, three budgets, and a large budget of which one prompt gets
#: a part. Without chunked prefill the budget is left to the server, which needs one as large as its longest prompt.
DEFAULT_GRID: Final = tuple(
    Setting(tuple(text.split()))
    for text in (
        "",
        "--no-enable-chunked-prefill",
        "--max-num-batched-tokens 512",
        "--max-num-batched-tokens 2048",
        "--max-num-batched-tokens 8192",
        "--max-num-batched-tokens 8192 --long-prefill-token-threshold 1024",
    )
)


def grid(varied: Sequence[str], settings: Sequence[str]) -> tuple[Setting, ...]:
    """What `--vary` and `--setting` ask for, each setting once; `DEFAULT_GRID` where they ask for nothing.

    Every value of one `--vary` is combined with every value of the others. Raises ConfigError.
    """
    if not varied and not settings:
        return DEFAULT_GRID
    axes = [_axis(text) for text in varied]
    _refuse_repeated(varied)
    combined = [Setting(tuple(itertools.chain(*flags))) for flags in itertools.product(*axes)] if axes else []
    wanted = tuple(dict.fromkeys([*combined, *(_setting(text) for text in settings)]))
    if len(wanted) > MOST_SETTINGS:
        raise ConfigError(
            f"these are {len(wanted)} settings, each a start of the server; a sweep takes at most {MOST_SETTINGS}: "
            "vary fewer flags at once"
        )
    return wanted


def command_with(command: Sequence[str], setting: Setting) -> tuple[str, ...]:
    """The command with the setting's flags: where it says ``{flags}``, else at its end, where the last one wins."""
    if not any(FLAGS_PLACEHOLDER in word for word in command):
        return (*command, *setting.flags)
    words: list[str] = []
    for word in command:
        if word == FLAGS_PLACEHOLDER:
            words += setting.flags
        else:
            words.append(word.replace(FLAGS_PLACEHOLDER, shlex.join(setting.flags)))
    return tuple(words)


def _axis(text: str) -> list[tuple[str, ...]]:
    """The flags that each value of ``NAME=VALUE,VALUE`` stands for.

    ``on`` and ``off`` are ``--NAME`` and ``--no-NAME``; ``default`` leaves the flag out.
    """
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--")
    parts = [value.strip() for value in values.split(",")]
    if not equals or not _FLAG_NAME.fullmatch(name) or not all(parts):
        raise ConfigError(
            f"--vary {text!r} is not a flag with its values; write for example max-num-batched-tokens=512,2048 or "
            "enable-chunked-prefill=on,off"
        )
    return [_flags_of(name, value) for value in dict.fromkeys(parts)]


def _flags_of(name: str, value: str) -> tuple[str, ...]:
    plain = name.removeprefix("no-")
    if value == "default":
        return ()
    if value == "on":
        return (f"--{name}",)
    if value == "off":
        return (f"--{plain}",) if plain != name else (f"--no-{name}",)
    return (f"--{name}", value)


def _setting(text: str) -> Setting:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--setting {text!r} cannot be taken apart ({error}); check its quotes") from None
    if words and not words[0].startswith("-"):
        raise ConfigError(f"--setting {text!r} must begin with a flag, for example --setting='--max-num-seqs 64'")
    return Setting(tuple(words))


def _refuse_repeated(varied: Iterable[str]) -> None:
    names = [text.partition("=")[0].strip().removeprefix("--") for text in varied]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--vary {name} is given twice; name all its values in one, with commas")
