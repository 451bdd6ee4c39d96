"""GPU memory with a stand-in for the NVML library, and without any."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.nvml import GpuMemoryReader


class NVMLError(Exception):
    pass


class StandIn(ModuleType):
    """Two GPUs, of which one may fall off the bus."""

    NVMLError = NVMLError

    def __init__(self, *, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.driver = driver
        self.lost: set[int] = set()
        self.calls: list[str] = []

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")
        if not self.driver:
            raise NVMLError("Uninitialized")

    def nvmlDeviceGetCount(self) -> int:
        if not self.driver:
            raise NVMLError("Unknown Error")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 << 30, used=(handle + 1) << 30, free=(79 - handle) << 30)


def reader(monkeypatch: pytest.MonkeyPatch, library: StandIn | None) -> GpuMemoryReader:
    monkeypatch.setitem(sys.modules, "pynvml", library)  # None makes the import fail
    return GpuMemoryReader()


def test_memory_of_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = reader(monkeypatch, StandIn())
    assert gpus.available
    assert gpus.read() == {"0": GpuMemory(1 << 30, 79 << 30), "1": GpuMemory(2 << 30, 78 << 30)}


def test_a_lost_gpu_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()
    gpus = reader(monkeypatch, library)
    library.lost.add(0)
    assert list(gpus.read()) == ["1"]


def test_a_driver_that_fails_later_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()
    gpus = reader(monkeypatch, library)
    library.driver = False
    assert gpus.read() == {}
    gpus.close()
    assert gpus.read() == {}


def test_close_hands_the_library_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()
    gpus = reader(monkeypatch, library)
    gpus.close()
    gpus.close()
    assert library.calls == ["init", "shutdown"]
    assert not gpus.available


@pytest.mark.parametrize("library", [None, StandIn(driver=False)], ids=["no library", "no driver"])
def test_without_a_gpu_there_is_nothing_to_tell(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, library: StandIn | None
) -> None:
    gpus = reader(monkeypatch, library)
    assert not gpus.available
    assert gpus.read() == {}
    gpus.close()
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


def test_the_real_library_does_no_harm_here() -> None:
    gpus = GpuMemoryReader()
    assert len(gpus.read()) == 0 or gpus.available
    gpus.close()
