"""``python -m prefillwatch.relay``: reads its settings from stdin and relays until it has drained."""

from __future__ import annotations

import gc
import signal
import sys
from typing import Final

from prefillwatch.relay.relay import Relay
from prefillwatch.relay.settings import decode_settings

#: Exchanges leave no cycles behind, so the collector would find nothing, and no token passes while it looks: 10 ms for
#: 50,000 objects. `Relay` has it look when nothing is in flight; before so many new objects, of which open streams have
#: some twenty each, it does so by itself only if something went wrong.
_COLLECT_AFTER: Final = 1_000_000


def main() -> int:
    """Exit code 0 after draining, 1 for settings that cannot be used."""
    try:
        relay = Relay(decode_settings(sys.stdin.buffer.read()))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"prefillwatch relay: cannot start: {error}\n")
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relay.reactor.on_signal(signal.SIGTERM, relay.drain)
    relay.reactor.on_signal(signal.SIGUSR2, relay.announce)
    relay.reactor.on_signal(signal.SIGHUP, relay.renew_certificate)
    relay.renew_certificate()  # one may have come before the signal was listened to
    relay.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    relay.reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
