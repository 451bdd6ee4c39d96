"""Units of time. Inside, times are whole nanoseconds of the monotonic clock; seconds appear at the edges."""

from typing import Final

#: Nanoseconds in a second: `seconds * NS`, `duration_ns / NS`.
NS: Final = 1_000_000_000
#: Nanoseconds in a millisecond.
MS: Final = 1_000_000
