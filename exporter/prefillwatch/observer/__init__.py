"""The observer process: what the relays saw becomes facts, metrics and an API. It is never on the data path.

Rooms, each entered by its front door::

    process         sockets, timers and signals
    observation     a core and all that is shown of it
    intake/         what comes in beside the taps: steps that plugins report, figures of our own processes
    metrics/        facts are counted, the view becomes gauges
    api/            the view as JSON: `/api/state`, `/api/incidents`
    live/           the view as events for the live page: who streams, every token, prompts, stalls, figures
"""
