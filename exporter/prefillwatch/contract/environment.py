"""Environment variables that more than one process knows."""

from typing import Final

#: Where the plugin inside vLLM looks for the sidecar's socket; `run` sets it for the server that it starts.
SOCKET_ENV: Final = "PREFILLWATCH_SOCKET"
