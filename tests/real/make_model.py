"""Write a tiny Llama with random weights, its tokenizer and a chat template: `make_model.py DIR` (run by setup.py).

Nothing is downloaded. The weights say nothing sensible, which is fine: what is under test is when tokens come, not
which. Two properties are made on purpose, so that tests can be exact: the model never picks a special token by itself,
and never one that is only a part of a character, so that every generated token is text of its own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 8192
CONTEXT = 16384
TRAINING_TEXT_BYTES = 2_000_000
SPECIAL = ("<pad>", "<s>", "</s>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def main() -> None:
    directory = Path(sys.argv[1])
    tokenizer = train_tokenizer()
    tokenizer.save_pretrained(directory)
    make_model(tokenizer).save_pretrained(directory, safe_serialization=True)


def train_tokenizer() -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(training_text(), trainer)
    pad, bos, eos = SPECIAL
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=pad, bos_token=bos, eos_token=eos)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = CONTEXT
    return tokenizer


def training_text() -> list[str]:
    """The standard library's own source: the text that every machine with Python has."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts: list[str] = []
    size = 0
    for path in sorted(library.glob("*.py")):
        texts.append(path.read_text(encoding="utf-8", errors="ignore"))
        size += len(texts[-1])
        if size > TRAINING_TEXT_BYTES:
            break
    return texts


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    torch.manual_seed(20)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=CONTEXT,
        rope_theta=10_000.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        torch_dtype="float32",
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # A logit of 0 never wins against the largest of thousands drawn around 0.
        model.lm_head.weight[unspeakable_tokens(tokenizer)] = 0.0
    return model


def unspeakable_tokens(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Special tokens, tokens that are not whole ASCII text, and ids that no token has."""
    return [i for i in range(VOCABULARY) if not speakable(tokenizer, i)]


def speakable(tokenizer: PreTrainedTokenizerFast, token: int) -> bool:
    text = tokenizer.decode([token], skip_special_tokens=True)
    return bool(text) and text.isascii()


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
