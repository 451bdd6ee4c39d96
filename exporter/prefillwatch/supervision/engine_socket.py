"""Where the plugin inside vLLM finds the observer: the path that was set, or a private one for a server we start."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from prefillwatch.contract.environment import SOCKET_ENV

log = logging.getLogger(__name__)


class EngineSocket:
    """The path outlives the observer, which listens there, so that a new one is found again."""

    def __init__(self, given: Path | None, *, private: bool) -> None:
        """``private``: where no path was given, make one in a folder that only we and what we start can enter."""
        self.path = str(given or "")
        self.folder = ""  # ours alone, gone after `close`
        if given is None and private:
            self._make_folder()

    def environment(self) -> dict[str, str]:
        """Environment that says to the plugin, in a server that we start, where the observer listens."""
        return {SOCKET_ENV: self.path} if self.path else {}

    def close(self) -> None:
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _make_folder(self) -> None:
        try:
            self.folder = tempfile.mkdtemp(prefix="prefillwatch-")
        except OSError as error:  # everything can be seen from the tokens alone
            log.info("no folder for the socket of the vLLM plugin: %s", error.strerror)
        else:
            self.path = str(Path(self.folder, "engine.sock"))
