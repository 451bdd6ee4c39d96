"""The one line that says why a server failed."""

from __future__ import annotations

import pytest

from prefillwatch.lab.sweep.said import LONGEST_LINE, last_error_line

VLLM_BUDGET_BELOW_LENGTH = """\
(APIServer pid=11) Traceback (most recent call last):
(APIServer pid=11)   File "/x/vllm/config.py", line 9, in create
(APIServer pid=11) pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig
(APIServer pid=11)   Value error, max_num_batched_tokens (512) is below max_model_len (16384). [type=value_error, x]
(APIServer pid=11)     For further information visit https://errors.pydantic.dev/2.12/v/value_error"""

VLLM_ENGINE_DIED = """\
(EngineCore_DP0 pid=12) ERROR 11-29 20:01:02 [core.py:708] EngineCore failed to start.
(EngineCore_DP0 pid=12) ERROR 11-29 20:01:02 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate
(EngineCore_DP0 pid=12) INFO 11-29 20:01:02 [core.py:800] shutting down
(APIServer pid=11) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
[rank0]: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (VLLM_BUDGET_BELOW_LENGTH, "Value error, max_num_batched_tokens (512) is below max_model_len (16384)."),
        (VLLM_ENGINE_DIED, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        (
            "usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --frob",
            "api_server.py: error: unrecognized arguments: --frob",
        ),
        ("bash: line 1: vllm: command not found", "bash: line 1: vllm: command not found"),
        (
            "OSError: [Errno 98] Address already in use\nINFO 11-29 20:01:02 bye",
            "OSError: [Errno 98] Address already in use",
        ),
        ("starting\nstill loading\n\n", "still loading"),
        ("", ""),
    ],
)
def test_it_is_the_reason_and_not_its_echo(output: str, line: str) -> None:
    assert last_error_line(output.splitlines()) == line


def test_a_line_without_end_is_cut() -> None:
    assert len(last_error_line([f"ValueError: {'x' * 5000}"])) == LONGEST_LINE
