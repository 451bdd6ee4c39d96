"""Classifies a kernel or CPU op by its name: which kind of work, of prefill or of decode, of which kind of layer.

The names are those of vLLM's own kernels and of the libraries that it calls (FlashAttention 2 to 4, FlashInfer,
TensorRT-LLM's, Triton, FlashMLA, flash-linear-attention, Mamba, cuBLAS, CUTLASS, NCCL, PyTorch), up to vLLM 0.32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "attention",
    "linear attention",
    "matrix product",
    "experts",
    "norm",
    "activation",
    "position",
    "KV cache",
    "quantization",
    "sampling",
    "embedding",
    "communication",
    "copy",
    "elementwise",
    "other",
]
Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels that do the same kind of work."""

    kind: Kind
    name: str
    #: None where the same kernel serves both.
    phase: Phase | None = None
    #: Runs once for each layer of its kind in a step (and phase), so that it can count layers and steps.
    layer_call: bool = False
    #: Runs when tokens are sampled: once near the end of a step, never between two layers.
    ends_step: bool = False


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    family: Family


def _rule(kind: Kind, name: str, pattern: str, phase: Phase | None = None, *, calls: bool = False) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), Family(kind, name, phase, layer_call=calls))


def _choice(name: str, pattern: str) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), Family("sampling", name, ends_step=True))


#: The first match wins, so specific rules come before general ones: a CUTLASS kernel may be attention, a Triton one
#: anything.
_RULES: Final = (
    # --- what only joins partial results, or plans the work, of attention ---
    _rule(
        "attention",
        "attention, joining parts",
        r"splitkv_(mla_)?combine|FwdCombine|mla_combine|merge_?(attn_)?states?|reduce_segments|decode_\w*stage2|"
        r"_fwd_kernel_stage2|paged_attention\w*_reduce|MergeStates|VariableLengthMerge|segment_reduce",
    ),
    _rule(
        "attention",
        "attention, planning",
        r"prepare_varlen_num_blocks|get_scheduler_metadata|mla_metadata|indexer\w*metadata|BatchPrefill\w*Plan",
    ),
    _rule(
        "other",
        "attention op around its kernels",
        r"unified_(mla_)?attention_with_output|unified_kv_cache_update|gdn_attention_core",
    ),
    # --- linear attention and state space layers ---
    _rule(
        "linear attention",
        "gated delta rule, prefill",
        r"chunk_gated_delta_rule|gdn_chunk|delta_h_kernel",
        "prefill",
        calls=True,
    ),
    _rule(
        "linear attention", "KDA / GLA, prefill", r"chunk_gla_fwd_kernel_o|lightning\w*prefill", "prefill", calls=True
    ),
    _rule(
        "linear attention",
        "linear attention, prefill helpers",
        r"chunk_(fwd|kda|gla|local|scaled|bwd)|recompute_w_u|solve_tril|merge_16x16_to|fused_post_conv_kernel|kda_gate|"
        r"_fwd_(diag|kv_parallel|kv_reduce|none_diag)|gather_initial_states|causal_conv1d_(fwd|fn)",
        "prefill",
    ),
    _rule(
        "linear attention",
        "gated delta rule, decode",
        r"fused_recurrent_(gated_delta|kda)|fused_sigmoid_gating_delta_rule|fused_kda_decode|linear_attn_decode|gdn_decode",
        "decode",
        calls=True,
    ),
    _rule(
        "linear attention",
        "state space, prefill",
        r"chunk_scan_fwd|selective_scan_fwd|Mamba\w*prefill",
        "prefill",
        calls=True,
    ),
    _rule(
        "linear attention",
        "state space, prefill helpers",
        r"chunk_state_fwd|chunk_cumsum_fwd|state_passing_fwd|bmm_chunk_fwd",
        "prefill",
    ),
    _rule("linear attention", "state space, decode", r"selective_(scan|state)_update|replayssm", "decode", calls=True),
    _rule("linear attention", "linear attention, decode helpers", r"causal_conv1d_update", "decode"),
    _rule("linear attention", "linear attention, helpers", r"causal_conv1d|gdn_gating|postprocess_mamba|short_conv"),
    # --- attention over the KV cache ---
    _rule(
        "attention",
        "FlashInfer, prefill",
        r"Batch(Prefill|Ragged)\w*Kernel|SinglePrefill|PrefillWithKVCache",
        "prefill",
        calls=True,
    ),
    _rule(
        "attention", "FlashInfer, decode", r"BatchDecode\w*Kernel|SingleDecode|xqa|kernel_mha\b", "decode", calls=True
    ),
    _rule("attention", "TensorRT-LLM attention, decode", r"fmhaSm\d+\w*ForGen|trtllm\w*decode", "decode", calls=True),
    _rule(
        "attention",
        "TensorRT-LLM attention, prefill",
        r"fmhaSm\d+\w*(Context|Causal)|trtllm\w*context",
        "prefill",
        calls=True,
    ),
    _rule(
        "attention",
        "MLA, decode",
        r"splitkv_mla|flash_?mla|FmhaMla|mla_decode|sparse_attn_decode|cutlass_mla|mla_a8w8",
        "decode",
        calls=True,
    ),
    _rule("attention", "MLA, prefill", r"sparse_attn_(fwd|prefill)|mla_prefill", "prefill", calls=True),
    _rule(
        "attention",
        "paged attention, decode",
        r"paged_attention|PagedAttention|pa_(fwd|bf16|fp16)|decode_attention",
        "decode",
        calls=True,
    ),
    _rule(
        "attention",
        "Triton attention, decode",
        r"_fwd_(grouped_)?kernel_stage1|unified_attention\w*_3d",
        "decode",
        calls=True,
    ),
    _rule("attention", "Triton attention", r"kernel_\w*unified_attention|flex_attention", calls=True),
    _rule(
        "attention",
        "Triton attention, prefill",
        r"^_fwd_kernel(_alibi)?$|context_attention|extend_attention",
        "prefill",
        calls=True,
    ),
    _rule(
        "attention",
        "FlashAttention",
        r"flash_fwd|FlashAttn(Fwd|Varlen)|flash_attn|FlashAttention|FmhaFwd|fmha_(fwd|cutlass)|mem_eff\w*attention|fmha_v\d",
        calls=True,
    ),
    _rule("attention", "CPU attention", r"cpu_attention|_scaled_dot_product_\w*(cpu|math)|zentorch_sdpa", calls=True),
    _rule("other", "attention op around its kernels", r"scaled_dot_product_attention"),
    _rule("attention", "Triton attention", r"^attn_fwd(\.kd)?$", calls=True),
    # --- the rest of a layer ---
    _rule(
        "KV cache",
        "KV cache writes",
        r"store_kv_?cache|reshape_and_cache|concat_and_cache|cache_kernel|swap_blocks|copy_blocks|zero_kv_blocks|kv_insert",
    ),
    _rule("experts", "grouped matrix products", r"^bmm_[A-Z]\w*_t\d+x\d+x\d+"),
    _rule("communication", "communication", r"\bep::(internode|intranode)\w*::"),
    _rule("experts", "expert routing", r"^_combined_routing|^_topk_forward|^_sum_bitmatrix"),
    _rule("experts", "mixture of experts", r"moe|expert|topk_?gating|grouped_topk|permute_kernel|finalize_routing"),
    _rule(
        "communication",
        "communication",
        r"nccl|rccl|all_?reduce|cross_device_reduce|reduce_?scatter|all_?gather|all_?to_?all|multimem|nvshmem|deep_?ep|one_shot|two_shot|gloo|c10d",
    ),
    # --- choosing tokens. Sorting and softmax are helpers: both also occur elsewhere. ---
    _choice(
        "choosing tokens",
        r"argmax|gumbel|multinomial|topk_?topp|TopK\w*Sampling|TopP\w*Sampling|MinP\w*Sampling|SamplingFrom|rejection\w*sampl|_sample_kernel",
    ),
    _rule(
        "sampling",
        "sampling helpers",
        r"softmax|radix_?sort|sort_kernel|DeviceRadixSort|bitonicSort|^aten::(sort|topk|cumsum)|penalt|temperature|min_p|logprob|bitmask|exponential|sampled",
    ),
    _rule("norm", "norms", r"rms_?norm|layer_?norm|l2norm|rsqrt|group_?norm|^aten::(mean|pow)$"),
    _rule("position", "position encoding", r"rotary|(?<![a-z])rope"),
    _rule(
        "matrix product",
        "matrix products",
        r"gemm|gemv|nvjet|cutlass|cublas|splitK|Cijk_|wvSplitK|marlin|machete|matmul|scaled_mm|onednn|_mm\b|::(mm|addmm|bmm|baddbmm|linear|dot|einsum)\b|packed_linear|mm_kernel",
    ),
    _rule("activation", "activations", r"silu|gelu|swiglu|act_and_mul|relu|sigmoid"),
    _rule("quantization", "quantization", r"quant|scaled_fp8|convert_fp8"),
    _rule("embedding", "embedding", r"embedding|vectorized_gather|indexSelect"),
    _rule(
        "copy",
        "copies",
        r"^mem(cpy|set)\b|copy|_to_copy|^aten::(to|clone|contiguous|fill_|zero_|zeros)$|FillFunctor|memcpy|^aten::_local_scalar_dense|^aten::item",
    ),
    _rule(
        "elementwise",
        "elementwise",
        r"elementwise|triton_(poi|red|per|tem|for)|reduce_kernel|index|scatter|gather|CatArray|^aten::(add|mul|sub|div|neg|silu|cat|sum|where|masked)",
    ),
)
OTHER: Final = Family("other", "other")


def family_of(name: str) -> Family:
    """The family of a kernel by the first rule that matches. Names of more than 400 characters are C++ templates: their
    beginning is enough."""
    text = name if len(name) <= 400 else name[:400]
    for rule in _RULES:
        if rule.pattern.search(text):
            return rule.family
    return OTHER


_BASE: Final = re.compile(r"^(?:(?:void|auto) )?(?:\(anonymous namespace\)::)?([\w~:]+)")
#: Wrappers whose first template argument is the kernel that runs.
_SHELL: Final = re.compile(r"(?:device_kernel|Kernel2?|kernel_cutlass)<\s*(?:[\w:]*enable_\w+<)?([\w:]+)")


def short_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters."""
    found = _SHELL.search(name) or _BASE.match(name)
    text = found.group(1) if found else name
    return text if len(text) <= 72 else text[:71] + "…"
