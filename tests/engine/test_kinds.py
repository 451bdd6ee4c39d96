"""Pages of every kind and time of server, read into the same few figures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prefillwatch.engine.errors import PageError
from prefillwatch.engine.kinds import EngineSample, read_page

Pages = Callable[[str], bytes]


def only(page: bytes) -> EngineSample:
    (engine,) = read_page(page).engines
    return engine


# --- Kinds and times


def test_vllm_0_8_with_its_old_names_and_no_engine_label(pages: Pages) -> None:
    page = read_page(pages("vllm_0_8"))
    assert page.server == "vllm"
    assert page.start_time == 1743000012.34
    assert page.engines == (
        EngineSample(
            engine="0",
            kv_usage=0.4375,
            capacity_tokens=27350 * 16,
            running=7,
            waiting=2,
            preemptions_total=3.0,
            prefix_queries_total=120_000.0,
            prefix_hits_total=30_000.0,
            block_size=16,
            model="meta-llama/Llama-3.1-8B-Instruct",
        ),
    )


def test_vllm_0_10_shows_both_names_and_the_new_ones_win(pages: Pages) -> None:
    engine = only(pages("vllm_0_10"))
    assert (engine.kv_usage, engine.prefix_queries_total, engine.prefix_hits_total) == (0.12, 100.0, 10.0)
    assert engine.preemptions_total == 0.0


def test_vllm_0_33_with_two_engines_is_never_averaged(pages: Pages) -> None:
    first, second = read_page(pages("vllm_0_33_two_engines")).engines
    assert (first.engine, first.kv_usage, first.running, first.waiting, first.preemptions_total) == ("0", 0.1, 1, 0, 0)
    assert (second.engine, second.kv_usage, second.running, second.waiting) == ("1", 0.98, 64, 17)
    assert second.preemptions_total == 12.0
    assert (first.capacity_tokens, second.capacity_tokens) == (8192, 4096)  # not the blocks, which are of both
    assert (first.free_tokens, second.free_tokens) == (7373, 82)


def test_replicas_on_one_page_are_engines_however_each_calls_its_own(pages: Pages) -> None:
    first, second = read_page(pages("vllm_ray_replicas")).engines
    assert (first.engine, first.kv_usage, first.running, first.preemptions_total) == ("a/0", 0.2, 3, 0)
    assert (second.engine, second.kv_usage, second.running, second.preemptions_total) == ("b/0", 0.98, 5, 7)
    assert (first.capacity_tokens, second.capacity_tokens) == (16_000, 8_000)
    assert [engine.kv_usage for engine in read_page(pages("vllm_ray_prefix")).engines] == [0.25, 0.75]


def test_replicas_without_a_replica_id_are_told_apart_by_their_process() -> None:
    page = read_page(
        b'ray_vllm_num_requests_running{WorkerId="w1"} 3\nray_vllm_num_requests_running{WorkerId="w2"} 5\n'
        b'ray_vllm_cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n'
    )
    assert [(engine.engine, engine.running) for engine in page.engines] == [("w1", 3), ("w2", 5)]
    assert [engine.capacity_tokens for engine in page.engines] == [1600, 1600]


def test_a_single_replica_keeps_the_name_of_its_engine_over_a_restart() -> None:
    for replica in ("a", "b"):
        page = f'ray_vllm_num_requests_running{{ReplicaId="{replica}",WorkerId="{replica}",engine="0"}} 3\n'
        assert only(page.encode()).engine == "0"


def test_several_processes_of_one_engine_are_one() -> None:
    engine = only(
        b'vllm:num_requests_running{engine="0",pid="7"} 3\nvllm:num_requests_running{engine="0",pid="8"} 5\n'
        b'vllm:num_preemptions_total{engine="0",pid="7"} 2\nvllm:num_preemptions_total{engine="0",pid="8"} 4\n'
    )
    assert (engine.running, engine.preemptions_total) == (5, 6.0)


def test_sglang_reads_one_part_of_each_engine(pages: Pages) -> None:
    page = read_page(pages("sglang_0_5"))
    first, second = page.engines
    assert page.server == "sglang"
    assert (first.engine, first.kv_usage, first.running, first.waiting) == ("0", 0.5, 12, 5)
    assert (first.capacity_tokens, first.block_size, first.preemptions_total) == (471_258, 64, 6.0)
    assert (second.engine, second.kv_usage, second.running, second.waiting) == ("1", 0.03, 3, None)


def test_older_sglang_tells_its_capacity_in_labels(pages: Pages) -> None:
    engine = only(pages("sglang_0_4"))
    assert (engine.engine, engine.kv_usage, engine.capacity_tokens) == ("0", 0.28, 16_000)


def test_a_pool_of_states_is_not_the_kv_cache(pages: Pages) -> None:
    page = pages("sglang_0_5_hybrid")
    engine = only(page)
    assert (engine.kv_usage, engine.free_tokens) == (0.12, 352_000)
    sliding = page.replace(b"swa_token_usage{", b"swa_token_usage_before{").replace(b"full_token_usage", b"full_before")
    sliding += b"sglang:full_token_usage 0.2\nsglang:swa_token_usage 0.98\n"
    assert only(sliding).kv_usage == 0.98  # it holds tokens too, and is the fuller one


@pytest.mark.parametrize(
    ("lines", "usage"),
    [
        ("token_usage 0.97", 0.97),  # of older releases, which tell no pools
        ("token_usage 0.5;full_token_usage 0.0;swa_token_usage 0.0;mamba_usage 0.0", 0.5),  # pools not filled in
        ("token_usage 0.12;full_token_usage 0.1152", 0.1152),
        ("full_token_usage 0.3", 0.3),
        ("mamba_usage 0.97", None),
    ],
)
def test_sglang_with_more_and_fewer_pools(lines: str, usage: float | None) -> None:
    page = "".join(f"sglang:{line}\n" for line in lines.split(";"))
    assert only(page.encode()).kv_usage == usage


def test_trtllm(pages: Pages) -> None:
    page = read_page(pages("trtllm"))
    (engine,) = page.engines
    assert (page.server, page.kv_signal_present) == ("trtllm", True)
    assert (engine.kv_usage, engine.running, engine.waiting) == (0.31, 6, 1)
    assert (engine.block_size, engine.capacity_tokens, engine.model) == (32, 64_000, "m")


def test_triton_tells_several_quantities_by_one_metric(pages: Pages) -> None:
    page = read_page(pages("triton_trtllm"))
    (engine,) = page.engines
    assert (page.server, engine.kv_usage, engine.running, engine.waiting) == ("triton", 0.25, 9, 4)
    assert (engine.block_size, engine.capacity_tokens) == (64, 6240 * 64)
    older = b"\n".join(line for line in pages("triton_trtllm").split(b"\n") if b"fraction" not in line)
    assert only(older).kv_usage == 0.25  # used blocks of all


def test_histograms_alone_tell_the_kind(pages: Pages) -> None:
    page = read_page(pages("vllm_histograms_only"))
    assert (page.server, page.engines, page.kv_signal_present) == ("vllm", (), False)


def test_what_is_left_out_of_too_large_a_page_is_counted() -> None:
    line = 'vllm:num_requests_running{{engine="0",pid="{}"}} 1\n'
    assert read_page("".join(line.format(number) for number in range(4096)).encode()).left_out == 0
    assert read_page("".join(line.format(number) for number in range(5000)).encode()).left_out == 904


def test_llamacpp_tells_no_kv_usage_and_that_is_unknown_not_zero(pages: Pages) -> None:
    page = read_page(pages("llamacpp"))
    (engine,) = page.engines
    assert page.server == "llamacpp"
    assert not page.kv_signal_present
    assert (engine.kv_usage, engine.free_tokens) == (None, None)
    assert (engine.running, engine.waiting) == (3, 1)


def test_what_older_llamacpp_tells_counts_idle_slots_too_and_is_no_usage(pages: Pages) -> None:
    page = read_page(pages("llamacpp_2024"))
    assert not page.kv_signal_present
    assert (page.engines[0].kv_usage, page.engines[0].running) == (None, 2)


def test_tgi(pages: Pages) -> None:
    page = read_page(pages("tgi"))
    assert page.server == "tgi"
    assert (page.engines[0].running, page.engines[0].waiting, page.engines[0].kv_usage) == (4, 7, None)


def test_a_page_without_engine_is_read_and_has_no_signal(pages: Pages) -> None:
    page = read_page(pages("without_engine"))
    assert (page.server, page.engines, page.kv_signal_present) == ("unknown", (), False)
    assert page.start_time == 1795000012.34


# --- Oddities


def test_odd_but_right_writing(pages: Pages) -> None:
    engine = only(pages("odd_but_right"))
    assert (engine.kv_usage, engine.running, engine.preemptions_total) == (0.42, 3, 2.0)
    assert engine.model == 'say "hi" \\ there\n, {ok}'


def test_broken_lines_make_figures_unknown(pages: Pages) -> None:
    engine = only(pages("broken_lines"))
    assert engine == EngineSample(engine="0")


@pytest.mark.parametrize("body", [b"", b"\n \r\n\t"])
def test_an_empty_page_is_told_apart(body: bytes) -> None:
    with pytest.raises(PageError) as caught:
        read_page(body)
    assert caught.value.reason == "empty"


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b'{"detail":"Not Found"}', b"\x00\xff\xfe"])
def test_what_is_no_page_of_metrics_is_told_apart(body: bytes) -> None:
    with pytest.raises(PageError) as caught:
        read_page(body)
    assert caught.value.reason == "parse"


@pytest.mark.parametrize(
    ("usage", "read"),
    [("0", 0.0), ("1", 1.0), ("1.004", 1.0), ("43.7", None), ("-0.1", None), ("NaN", None), ("+Inf", None)],
)
def test_usage_is_a_ratio_or_unknown(usage: str, read: float | None) -> None:
    assert only(f'vllm:kv_cache_usage_perc{{engine="0"}} {usage}\n'.encode()).kv_usage == read


def test_a_new_name_without_a_value_leaves_the_old_one() -> None:
    page = b'vllm:kv_cache_usage_perc{engine="0"} NaN\nvllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
    assert only(page).kv_usage == 0.5


def test_the_same_series_twice_counts_once() -> None:
    line = b'vllm:num_preemptions_total{engine="0",model_name="m"} 4\n'
    assert only(line + line).preemptions_total == 4.0


def test_configuration_without_an_engine_label_speaks_for_all_engines() -> None:
    page = read_page(
        b'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.2\n'
        b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",max_num_batched_tokens="8192"} 1\n'
    )
    assert [engine.engine for engine in page.engines] == ["0", "1"]
    assert [engine.capacity_tokens for engine in page.engines] == [1600, 1600]
    assert [engine.max_num_batched_tokens for engine in page.engines] == [8192, 8192]


@pytest.mark.parametrize("blocks", ["None", "", "0", "-5", "12.5", "9" * 5000, "٣"])
def test_capacity_is_unknown_until_the_blocks_are_counted(blocks: str) -> None:
    page = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}",engine="0"}} 1\n'
    engine = only(page.encode())
    assert (engine.capacity_tokens, engine.block_size) == (None, 16)


def test_engines_come_in_order_of_their_number() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{number}"}} 1\n' for number in (10, 2, 0, 1))
    assert [engine.engine for engine in read_page(page.encode()).engines] == ["0", "1", "2", "10"]


def test_made_up_engines_are_bounded_in_number_and_length() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{"x" * 500}{number}"}} 1\n' for number in range(10))
    assert len(read_page(page.encode()).engines) == 1
    page = "".join(f'vllm:num_requests_running{{engine="{number}"}} 1\n' for number in range(1000))
    assert len(read_page(page.encode()).engines) == 256


def test_the_models_of_a_page_are_named_once(pages: Pages) -> None:
    assert read_page(pages("vllm_0_33_two_engines")).models == ("tiny",)
    assert read_page(pages("llamacpp")).models == ()
