"""Access patterns of recorded traffic: a file of arrivals with prompt and output tokens becomes load."""

from prefillwatch.lab.arrivals.play import PlayReport, chat_body, play, prompt_text, sender
from prefillwatch.lab.arrivals.rate import check_rate
from prefillwatch.lab.arrivals.read import Reading, read_arrivals
from prefillwatch.lab.arrivals.schedule import Arrival, ArrivalsError, Schedule

__all__ = [
    "Arrival",
    "ArrivalsError",
    "PlayReport",
    "Reading",
    "Schedule",
    "chat_body",
    "check_rate",
    "play",
    "prompt_text",
    "read_arrivals",
    "sender",
]
