"""From the reads of answers to verdicts: pure code, no sockets, no clocks, no metrics. Times are monotonic nanoseconds.

The way of a token, with six streams at 20 ms per step and a document of 6,000 tokens that arrives in between (the
example of ``docs/method.md``, whose figures a test recomputes)::

    ledger.token             a read of a stream: when, how many token events. Noted, nothing else
    ledger.advance           several times a second, over all streams together:

    tokens.GapBook           reads -> gaps                   20 ms, 20 ms, then 306, 306 and 288 ms in all six streams
    steps.Heartbeat          reads -> engine steps           reads of all streams within milliseconds are one step
    cost.ClearStep           steps without a prompt          20 ms, so 306 ms is long
    steps.PrefillTimeline    steps -> prompts in them        the document had no first token yet: it may be in them
                             its first token ends the guess  it was done in the third long step; packed back from there
                                                             2,042 + 2,042 + 1,916 tokens
    cost.Costs               steps -> what a token costs     0.14 ms, and 2,048 tokens fit into a step
    populations              gap -> population and bucket    three gaps are ``prefill``, ``2k-8k``; the others clear
    verdicts.StallTracker    gap -> stall                    306 ms is 100 ms at least and four times the 20 ms
                             stall -> case -> cause          6,000 tokens cost 0.84 s and can fill it: ``prefill``,
                                                             all of it by the document
                             stalls -> incident              one freeze: 6 victims, 901 ms, 5.04 stall seconds
    deadlines.Promises       gaps -> promises kept or not
    figures                  each fact to the sink, and into the windows of its model

The way of a prompt: ``ledger.received`` (its size is estimated: ``requests.PromptSizing``), ``sent`` (it waits in the
queue of the timeline), its first token (TTFT), ``sized`` (usage reports its size), ``ended``.

Most answers come in two stages, since whose prompt was in a step may only show when the waiting requests get their
first tokens: provisional ones for the page and the API, final ones for the counters.

Rooms, each entered by its front door; imports point down::

    ledger                       the order of the stages
    populations                  which prompt was in service during a gap
    figures, model_books         facts become figures: sink, windows per model
    verdicts/  deadlines/        stalls, waits, their causes and incidents; promises
    facts                        `Sink`: everything that leaves
    delays                       values: a stall, a wait, an incident, and what is known of them
    engines/                     several behind one door: which stream is on which, each with steps of its own
    steps/     requests/         heartbeat, queue, packing, timeline; one request and its prompt
    cost/      tokens/           what a step costs; gaps, baselines, windows
    settings, tuning, arrays     what operators set; the numbers of the method; kinds of arrays
"""
