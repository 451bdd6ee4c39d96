"""One incident as a person would tell it, with a picture: from an `Account` to Markdown, HTML and SVG. Pure.

What is kept of an incident is gathered by `core.view` when it closes; nothing in it is the text of a prompt or answer.
"""

from prefillwatch.story.account import Account, Engine, Prompt, Reading, Step, Stop, Stream
from prefillwatch.story.drawing import Bar, Lane, Lanes, Span, draw
from prefillwatch.story.lookup import UnknownIncidentError, find
from prefillwatch.story.pictures import picture, title
from prefillwatch.story.render import html, markdown
from prefillwatch.story.telling import tell

__all__ = [
    "Account",
    "Bar",
    "Engine",
    "Lane",
    "Lanes",
    "Prompt",
    "Reading",
    "Span",
    "Step",
    "Stop",
    "Stream",
    "UnknownIncidentError",
    "draw",
    "find",
    "html",
    "markdown",
    "picture",
    "tell",
    "title",
]
