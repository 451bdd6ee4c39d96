"""Memory of the GPUs that are visible here, through NVML. Without a GPU, a driver or the library there is nothing to
tell, and that is no fault."""

from __future__ import annotations

import logging
from types import ModuleType

from prefillwatch.engine.gpu_memory import GpuMemory

log = logging.getLogger(__name__)


class GpuMemoryReader:
    """Reads the memory of all GPUs. Its calls go to the driver and may block: keep them off the event loop."""

    def __init__(self) -> None:
        self._nvml = _start_nvml()

    @property
    def available(self) -> bool:
        return self._nvml is not None

    def read(self) -> dict[str, GpuMemory]:
        """Memory by the index of the GPU; one that cannot be read now is left out. Never raises."""
        nvml = self._nvml
        if nvml is None:
            return {}
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError:
            return {}
        found: dict[str, GpuMemory] = {}
        for index in range(count):
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError:
                continue
            found[str(index)] = GpuMemory(int(memory.used), int(memory.free))
        return found

    def close(self) -> None:
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                log.debug("NVML did not shut down cleanly")


def _start_nvml() -> ModuleType | None:
    try:
        import pynvml
    except ImportError:
        log.debug("GPU memory is not watched: nvidia-ml-py is not installed")
        return None
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        log.debug("GPU memory is not watched: %s", error)
        return None
    return nvml
