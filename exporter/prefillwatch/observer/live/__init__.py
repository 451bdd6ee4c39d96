"""The live page's events. While nobody watches, nothing of this exists."""

from prefillwatch.observer.live.feed import LiveFeed, event
from prefillwatch.observer.live.figures import MOST_ENGINES, MOST_MODELS, live_figures
from prefillwatch.observer.live.lanes import MOST_TICKS, Lanes

__all__ = ["MOST_ENGINES", "MOST_MODELS", "MOST_TICKS", "Lanes", "LiveFeed", "event", "live_figures"]
