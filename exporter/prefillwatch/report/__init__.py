"""How reports read, the same in doctor, probe, sweep, trace, replay and demo: quantities, sentences, tables. Pure.

What people write in settings (``1m30s``, ``8k``) is of another kind: see `settings.quantities`.
"""

from prefillwatch.report.quantities import ABSENT, counted, duration, listed, share
from prefillwatch.report.text import aligned, columns, text_table, wrapped

__all__ = ["ABSENT", "aligned", "columns", "counted", "duration", "listed", "share", "text_table", "wrapped"]
