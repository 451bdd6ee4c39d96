"""No secret of a command gets into files or onto screens."""

from __future__ import annotations

import shlex

import pytest

from prefillwatch.lab.sweep.redaction import without_secrets


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("vllm serve m --api-key marker", "vllm serve m --api-key ***"),
        ("vllm serve m --api-key=marker --port 1", "vllm serve m --api-key=*** --port 1"),
        ("vllm serve m --api-key one two --port 1", "vllm serve m --api-key *** *** --port 1"),
        ("vllm serve m --hf-token marker", "vllm serve m --hf-token ***"),
        ("env HF_TOKEN=marker vllm serve m", "env HF_TOKEN=*** vllm serve m"),
        ("bash -c 'VLLM_API_KEY=marker vllm serve m'", "bash -c 'VLLM_API_KEY=*** vllm serve m'"),
        ("vllm serve m --max-num-batched-tokens 512", "vllm serve m --max-num-batched-tokens 512"),
        ("vllm serve m --tokenizer-mode auto", "vllm serve m --tokenizer-mode auto"),
    ],
)
def test_values_of_secret_options_are_hidden(command: str, shown: str) -> None:
    assert without_secrets(shlex.split(command)) == tuple(shlex.split(shown))
