"""Which settings a sweep tries, and how they get into the command."""

from __future__ import annotations

import shlex

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.lab.sweep.grid import DEFAULT_GRID, Setting, command_with, grid


def labels(varied: tuple[str, ...] = (), settings: tuple[str, ...] = ()) -> list[str]:
    return [setting.label for setting in grid(varied, settings)]


def test_without_a_wish_both_ends_of_the_dial_and_three_budgets_are_tried() -> None:
    tried = labels()
    assert tried[0] == "(as given)"
    assert "--no-enable-chunked-prefill" in tried
    assert sum(label.startswith("--max-num-batched-tokens") for label in tried) >= 3
    assert any("--long-prefill-token-threshold" in label for label in tried)
    assert grid((), ()) == DEFAULT_GRID


@pytest.mark.parametrize(
    ("varied", "expected"),
    [
        ("max-num-seqs=8,16", ["--max-num-seqs 8", "--max-num-seqs 16"]),
        ("--max-num-seqs=8, 16", ["--max-num-seqs 8", "--max-num-seqs 16"]),
        ("enable-chunked-prefill=on,off", ["--enable-chunked-prefill", "--no-enable-chunked-prefill"]),
        ("no-enable-prefix-caching=on,off", ["--no-enable-prefix-caching", "--enable-prefix-caching"]),
        ("max-num-seqs=default,8,8", ["(as given)", "--max-num-seqs 8"]),
    ],
)
def test_one_flag_varied(varied: str, expected: list[str]) -> None:
    assert labels((varied,)) == expected


def test_every_value_of_one_flag_meets_every_value_of_the_other() -> None:
    assert labels(("a=1,2", "b=3,off")) == ["--a 1 --b 3", "--a 1 --no-b", "--a 2 --b 3", "--a 2 --no-b"]


def test_whole_settings_come_after_what_is_varied_and_none_comes_twice() -> None:
    assert labels(("a=1,2",), ("--a 2", "--x 'two words'", "")) == ["--a 1", "--a 2", "--x 'two words'", "(as given)"]


@pytest.mark.parametrize(
    ("varied", "settings", "message"),
    [
        (("max-num-seqs",), (), "--vary 'max-num-seqs' is not a flag with its values; write for example"),
        (("max-num-seqs=8,",), (), "is not a flag with its values"),
        (("=8",), (), "is not a flag with its values"),
        (("rm -rf=8",), (), "is not a flag with its values"),
        (("a=1", "--a=2"), (), "--vary a is given twice; name all its values in one"),
        ((), ("--x 'open",), "cannot be taken apart .* check its quotes"),
        ((), ("max-num-seqs 8",), "must begin with a flag"),
        (("a=1,2,3,4,5,6,7,8,9", "b=1,2,3,4,5,6,7,8,9"), (), "these are 81 settings, .* at most 64"),
    ],
)
def test_what_cannot_be_tried_is_refused_by_name(
    varied: tuple[str, ...], settings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        grid(varied, settings)


@pytest.mark.parametrize(
    ("command", "flags", "expected"),
    [
        ("vllm serve m", "--a 1", "vllm serve m --a 1"),
        ("vllm serve m", "", "vllm serve m"),
        ("docker run image {flags} --port {port}", "--a 1", "docker run image --a 1 --port {port}"),
        ("bash -c 'exec vllm serve m {flags}'", "--a '1 2'", """bash -c "exec vllm serve m --a '1 2'" """),
    ],
)
def test_the_flags_go_to_the_end_or_where_the_command_wants_them(command: str, flags: str, expected: str) -> None:
    assert command_with(shlex.split(command), Setting(tuple(shlex.split(flags)))) == tuple(shlex.split(expected))
