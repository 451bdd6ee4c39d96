"""Where settings come from: flags, then ``PREFILLWATCH_*``, then a YAML file.

A key has one name in all three places: ``max_body`` in YAML, ``PREFILLWATCH_MAX_BODY``, ``--max-body``. The sources are
merged here rather than by a library, so that an error can say which of them brought the bad value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from prefillwatch.contract.environment import SOCKET_ENV
from prefillwatch.errors import ConfigError
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.kinds import kind_in_yaml

ENV_PREFIX: Final = "PREFILLWATCH_"
CONFIG_ENV: Final = "PREFILLWATCH_CONFIG"
#: Read by the experiments, not by the sidecar; it may be in the sidecar's environment as well.
KEY_ENV: Final = "PREFILLWATCH_API_KEY"
#: Larger than any configuration; a larger file is something else and would take long to read.
_LARGEST_FILE: Final = 2**20
# Kubernetes sets these for a Service called "prefillwatch…"; they are not meant for us.
_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$"
)


def flag_name(key: str) -> str:
    return "--" + key.replace("_", "-")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was given, and where, in the words of its source."""

    value: Any
    origin: str


def load(flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None = None) -> Settings:
    """Merge the sources and validate them. ``flags`` holds only what was given on the command line.

    Raises ConfigError; its message has one line per problem, each naming key, source, input and remedy.
    """
    path = config_file or (Path(environ[CONFIG_ENV]) if environ.get(CONFIG_ENV) else None)
    given = _from_file(path) if path else {}
    given |= _from_environment(environ)
    given |= {key: _Given(value, flag_name(key)) for key, value in flags.items()}
    try:
        return Settings.model_validate({key: item.value for key, item in given.items()})
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(error, given))) from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for name, value in environ.items():
        if not name.startswith(ENV_PREFIX) or name in (CONFIG_ENV, KEY_ENV) or _SERVICE_LINK.search(name):
            continue
        key = "engine_socket" if name == SOCKET_ENV else name.removeprefix(ENV_PREFIX).lower()
        if key not in Settings.model_fields:
            raise ConfigError(f"{name} is no setting of prefillwatch{_nearest(key, lambda k: ENV_PREFIX + k.upper())}")
        given[key] = _Given(value, name)
    return given


def _from_file(path: Path) -> dict[str, _Given]:
    content = _yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, not {kind_in_yaml(content)}")
    for key in content:
        if key not in Settings.model_fields:
            raise ConfigError(f"{path}: {key!r} is no setting of prefillwatch{_nearest(str(key), str)}")
    return {key: _Given(value, str(path)) for key, value in content.items()}


def _yaml(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise ConfigError(f"{path} has more than {_LARGEST_FILE} bytes; is it a configuration file?")
        return yaml.load(text.decode(), Loader=_UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path} is not valid YAML{where}: {error.problem or error.context}") from None
    # Values that only look like a date or a number raise a plain ValueError.
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid YAML: it is nested too deeply") from None


def _nearest(key: str, spelled: Any) -> str:
    nearest = difflib.get_close_matches(key.lower().replace("-", "_"), Settings.model_fields, n=1, cutoff=0.5)
    return f"; did you mean {spelled(nearest[0])}?" if nearest else "; see 'prefillwatch serve --help' for all of them"


def _lines(error: ValidationError, given: Mapping[str, _Given]) -> list[str]:
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        message = problem["msg"].removeprefix("Value error, ")
        key = str(problem["loc"][0]) if problem["loc"] else ""
        lines.append(f"{key} ({given[key].origin}): {message}" if key in given else message)
    return lines


_MERGE: Final = "tag:yaml.org,2002:merge"


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that names a key twice, where YAML would quietly keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
                continue  # it says by itself what may not be a key, and what a merge brings may be set anew
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is set twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
