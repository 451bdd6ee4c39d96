"""The generator's library needs Python 3.11; everything else here is checked on every version."""

from __future__ import annotations

import sys

collect_ignore = [] if sys.version_info >= (3, 11) else ["test_generated.py"]
