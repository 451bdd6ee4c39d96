"""Commands without the secrets in them, for files and screens. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"

#: A part of a name, between hyphens, underscores and capitals, that says: what I am set to is a secret. `tokens` is not
#: among them: it is what servers count.
_NAMED: Final = (
    r"(?:api_?keys?|keys?|token|secrets?|password|passwd|passphrase|credentials?|auth|authorization|bearer|signature)"
)
_PART: Final = rf"(?<![A-Za-z]){_NAMED}(?![A-Za-z])"
#: An option is named after its last word; a variable may go on: AWS_NAMED_ACCESS_KEY, SECRET_FOR_S3.
_OPTION: Final = rf"--(?:[\w-]*[-_])?{_NAMED}"
_NAME: Final = rf"[\w.-]*{_PART}[\w.-]*"
_VALUE: Final = r"""(?:"[^"]*"|'[^']*'|[^\s'"&]+)"""

_IS_OPTION: Final = re.compile(_OPTION, re.IGNORECASE)
_SET_OPTION: Final = re.compile(rf"({_OPTION}=).*", re.IGNORECASE | re.DOTALL)
#: Inside a word that is a command, or a URL, or JSON.
_INSIDE: Final = (
    (re.compile(rf"({_OPTION}\s+)(?:(?!-){_VALUE}\s*)+", re.IGNORECASE), rf"\g<1>{HIDDEN} "),
    (re.compile(rf"({_OPTION}=){_VALUE}", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(rf"((?<![\w-])(?!-){_NAME}=){_VALUE}", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(rf"""(["']{_NAME}["']\s*:\s*){_VALUE}""", re.IGNORECASE), rf'\g<1>"{HIDDEN}"'),
    (re.compile(rf"((?<![\w\"']){_NAME}\s*:\s+)[^'\"]+", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(r"\b((?:bearer|basic)\s+)[^\s'\"]+", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(r"(\w://)[^/\s@'\"]+@"), rf"\g<1>{HIDDEN}@"),
)


def without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command, less the secrets in them: what options, variables, headers, URLs and JSON members are set
    to that are named like one."""
    shown: list[str] = []
    hide = False
    for word in words:
        hidden = HIDDEN if hide and not word.startswith("-") else _hidden_inside(word)
        # Some options take several keys: all words up to the next option.
        hide = bool(_IS_OPTION.fullmatch(word)) or (hide and hidden == HIDDEN)
        shown.append(hidden)
    return tuple(shown)


def _hidden_inside(word: str) -> str:
    option = _SET_OPTION.fullmatch(word)
    if option is not None:
        return option[1] + HIDDEN
    for pattern, instead in _INSIDE:
        word = pattern.sub(instead, word)
    return word.rstrip(" ")
