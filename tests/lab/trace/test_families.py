"""Names of real kernels, as they stand in traces and in vLLM's source, and what they are."""

from __future__ import annotations

import pytest
from tests.lab.trace.gpu_trace import ARGMAX, FILL, FLASH

from prefillwatch.lab.trace.families import OTHER, family_of, short_name

FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloop<2, "
    "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >"
)
FLASHINFER_PREFILL = (
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1>>"
)
FLASHINFER_DECODE = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>"
SORT = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2>"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const>>"
)


@pytest.mark.parametrize(
    ("name", "kind", "phase", "layer_call"),
    [
        # attention over the KV cache
        (FLASH, "attention", None, True),
        (FA3, "attention", None, True),
        ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100", "attention", None, True),
        ("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>", "attention", None, False),
        ("flash::prepare_varlen_num_blocks_kernel(int, int, int)", "attention", None, False),
        (FLASHINFER_PREFILL, "attention", "prefill", True),
        (FLASHINFER_DECODE, "attention", "decode", True),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32PersistentContext", "attention", "prefill", True),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvDenseP32StaticSwapsAbForGen", "attention", "decode", True),
        ("void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>", "attention", None, False),
        ("kernel_unified_attention_2d", "attention", None, True),
        ("attn_fwd", "attention", None, True),
        ("void (anonymous namespace)::store_kvcache<2048l, 4, false, long>(int)", "KV cache", None, False),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_swiGlu_dynBatch_sm100f", "experts", None, False),
        ("void deep_ep::internode::dispatch<false, 8, false>", "communication", None, False),
        ("void ep::intranode::combine<__nv_bfloat16, 8, 768>", "communication", None, False),
        ("_combined_routing_compute", "experts", None, False),
        ("_topk_forward", "experts", None, False),
        ("kernel_unified_attention_3d", "attention", "decode", True),
        ("kernel_unified_attention", "attention", None, True),
        ("reduce_segments", "attention", None, False),
        ("kernel_paged_attention_2d", "attention", "decode", True),
        ("void vllm::paged_attention_v1_kernel<unsigned short, 128, 16>", "attention", "decode", True),
        ("void vllm::paged_attention_v2_reduce_kernel<unsigned short, 128>", "attention", None, False),
        ("_fwd_kernel", "attention", "prefill", True),
        ("_fwd_grouped_kernel_stage1", "attention", "decode", True),
        ("_fwd_kernel_stage2", "attention", None, False),
        ("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576>>", "attention", "decode", True),
        ("_C::cpu_attention_with_kv_cache", "attention", None, True),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention", None, True),
        ("aten::scaled_dot_product_attention", "other", None, False),
        ("vllm::unified_attention_with_output", "other", None, False),
        ("_C::decode_attention_cpu", "attention", "decode", True),
        ("_C::extend_attention_cpu", "attention", "prefill", True),
        # linear attention, state space
        ("fused_recurrent_gated_delta_rule_packed_decode_kernel", "linear attention", "decode", True),
        ("fused_recurrent_gated_delta_rule_fwd_kernel", "linear attention", "decode", True),
        ("fused_sigmoid_gating_delta_rule_update_kernel", "linear attention", "decode", True),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "linear attention", "prefill", True),
        ("chunk_fwd_kernel_o", "linear attention", "prefill", False),
        ("chunk_scaled_dot_kkt_fwd_kernel", "linear attention", "prefill", False),
        ("merge_16x16_to_64x64_inverse_kernel", "linear attention", "prefill", False),
        ("recompute_w_u_fwd_kernel", "linear attention", "prefill", False),
        ("_causal_conv1d_fwd_kernel", "linear attention", "prefill", False),
        ("_causal_conv1d_update_kernel", "linear attention", "decode", False),
        ("_selective_scan_update_kernel", "linear attention", "decode", True),
        ("_chunk_scan_fwd_kernel", "linear attention", "prefill", True),
        ("_C::chunk_gated_delta_rule_cpu", "linear attention", "prefill", True),
        ("_C::selective_state_update_cpu", "linear attention", "decode", True),
        # the rest
        ("nvjet_tst_128x24_64x11_2x1_v_bz_TNT", "matrix product", None, False),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize160x128x32", "matrix product", None, False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu>", "matrix product", None, False),
        ("void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise>", "matrix product", None, False),
        ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32", "matrix product", None, False),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, __half>", "matrix product", None, False),
        ("aten::mm", "matrix product", None, False),
        ("aten::addmm", "matrix product", None, False),
        ("_C::onednn_mm", "matrix product", None, False),
        ("fused_moe_kernel", "experts", None, False),
        ("void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>", "experts", None, False),
        ("void vllm::rms_norm_kernel<c10::Half, 8>", "norm", None, False),
        ("triton_red_fused__to_copy_add_copy__mean_mul_pow_rsqrt_0", "norm", None, False),
        ("void vllm::act_and_mul_kernel<c10::Half>", "activation", None, False),
        ("triton_poi_fused_mul_silu_slice_4", "activation", None, False),
        ("void vllm::rotary_embedding_kernel<c10::Half, true>", "position", None, False),
        ("void vllm::reshape_and_cache_flash_kernel<unsigned short>", "KV cache", None, False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", None, False),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", "communication", None, False),
        (ARGMAX, "sampling", None, False),
        ("_gumbel_sample_kernel", "sampling", None, False),
        ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>", "sampling", None, False),
        ("aten::argmax", "sampling", None, False),
        ("Memcpy HtoD (Pinned -> Device)", "copy", None, False),
        ("Memset (Device)", "copy", None, False),
        (FILL, "copy", None, False),
        (COPY, "copy", None, False),
        ("aten::embedding", "embedding", None, False),
    ],
)  # fmt: skip
def test_what_a_name_says(name: str, kind: str, phase: str | None, layer_call: bool) -> None:
    family = family_of(name)
    assert (family.kind, family.phase, family.layer_call) == (kind, phase, layer_call)


@pytest.mark.parametrize(
    "name", [ARGMAX, "_gumbel_sample_kernel", "_C::greedy_argmax", "rejection_greedy_sample_kernel"]
)
def test_choosing_tokens_ends_a_step(name: str) -> None:
    assert family_of(name).ends_step


@pytest.mark.parametrize("name", ["void cunn_SoftMaxForward<4>", "aten::softmax", SORT, "void vllm::moe::topkGating"])
def test_what_also_happens_inside_a_layer_does_not(name: str) -> None:
    assert not family_of(name).ends_step


def test_a_name_nobody_knows_is_other() -> None:
    assert family_of("zzz") is OTHER
    assert family_of("") is OTHER


def test_only_the_start_of_an_endless_name_is_looked_at() -> None:
    assert family_of("x" * 1_000_000 + "gemm") is OTHER


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (FLASH, "flash::flash_fwd_splitkv_kernel"),
        (FA3, "flash::FlashAttnFwdSm90"),
        ("chunk_fwd_kernel_o", "chunk_fwd_kernel_o"),
        ("aten::mm", "aten::mm"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy"),
        ("void (anonymous namespace)::elementwise_kernel<4>(int)", "elementwise_kernel"),
        ("x" * 100, "x" * 71 + "…"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
