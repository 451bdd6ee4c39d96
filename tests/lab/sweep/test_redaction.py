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
        ("env AWS_SECRET_ACCESS_KEY=marker vllm serve s3://m", "env AWS_SECRET_ACCESS_KEY=*** vllm serve s3://m"),
        ("env OPENAI_KEY=marker openai_key=marker m", "env OPENAI_KEY=*** openai_key=*** m"),
        ("bash -c 'vllm serve m --api-key marker --port 1'", "bash -c 'vllm serve m --api-key *** --port 1'"),
        ("bash -c 'vllm serve m --api-key marker marker'", "bash -c 'vllm serve m --api-key ***'"),
        ("curl --header 'Authorization: Bearer marker'", "curl --header 'Authorization: ***'"),
        ("sh -c 'curl -H \"X-Api-Key: marker\" x'", "sh -c 'curl -H \"X-Api-Key: ***\" x'"),
        ("m --url 'https://user:marker@host/x?token=marker&a=b'", "m --url 'https://***@host/x?token=***&a=b'"),
        ("""m --s3-config '{"password": "marker", "a": 1}'""", """m --s3-config '{"password": "***", "a": 1}'"""),
        ("m '--api-key=marker marker'", "m '--api-key=***'"),
        ("m --ssl-keyfile /path --ssl-keyfile-password marker", "m --ssl-keyfile /path --ssl-keyfile-password ***"),
        ("env TOKENIZERS_PARALLELISM=false PWD=/x m:tag", "env TOKENIZERS_PARALLELISM=false PWD=/x m:tag"),
        ("""m --override-generation-config '{"max_tokens": 5}'""",) * 2,
        ("vllm serve m --max-num-batched-tokens 512", "vllm serve m --max-num-batched-tokens 512"),
        ("vllm serve m --tokenizer-mode auto", "vllm serve m --tokenizer-mode auto"),
    ],
)
def test_values_of_secret_options_are_hidden(command: str, shown: str) -> None:
    assert without_secrets(shlex.split(command)) == tuple(shlex.split(shown))
