"""Write a tiny Llama with random weights for llama.cpp: `make_gguf.py FILE` (run by setup.py).

As `make_model.py` does for vLLM, whose tokenizer and whose rules it takes: nothing is downloaded, the model never ends
by itself, and every token that it makes is text of its own. It is smaller, so that a step of six streams takes a few
milliseconds on one core.
"""

from __future__ import annotations

import json
import os
import sys

import gguf
import numpy as np
from make_model import CHAT_TEMPLATE, SPECIAL, VOCABULARY, speakable, train_tokenizer

CONTEXT = 65536
HIDDEN, FEED_FORWARD, LAYERS, HEADS = 256, 704, 4, 4
#: As random models are usually drawn.
SPREAD = 0.02


def main() -> None:
    tokenizer = train_tokenizer()
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    add_tokenizer(writer, tokenizer)
    add_weights(writer, [speakable(tokenizer, token) for token in range(VOCABULARY)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: object) -> None:
    # The merges stand only in the tokenizer's own file.
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]  # type: ignore[attr-defined]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokens += [f"<unused {number}>" for number in range(len(tokens), VOCABULARY)]
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]])
    pad, bos, eos = map(tokens.index, SPECIAL)
    writer.add_pad_token_id(pad)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(eos)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_weights(writer: gguf.GGUFWriter, speakable_tokens: list[bool]) -> None:
    random = np.random.default_rng(20)

    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, random.normal(0.0, SPREAD, (rows, columns)).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(HIDDEN, np.float32))

    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    norm("output_norm.weight")
    # A logit of 0 never wins against the largest of thousands drawn around 0.
    output = random.normal(0.0, SPREAD, (VOCABULARY, HIDDEN)).astype(np.float32)
    output[~np.array(speakable_tokens)] = 0.0
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        for norm_name in ("attn_norm", "ffn_norm"):
            norm(f"blk.{layer}.{norm_name}.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}.weight", HIDDEN, HIDDEN)
        for name, rows, columns in (
            ("ffn_gate", FEED_FORWARD, HIDDEN),
            ("ffn_up", FEED_FORWARD, HIDDEN),
            ("ffn_down", HIDDEN, FEED_FORWARD),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
