"""The words for why an exchange did not end well."""

from __future__ import annotations

import re
from pathlib import Path

import prefillwatch.relay
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.reasons import RelayReason, UnparsedReason
from prefillwatch.wire.tap import End, Finish, Kind, decode_payload, encode_payload

RELAY = Path(prefillwatch.relay.__file__).parent


def test_each_word_is_its_members_name_and_goes_through_the_tap_as_itself() -> None:
    for reason in RelayReason:
        assert reason.value == reason.name.lower() == str(reason) == f"{reason}"
        told = decode_payload(Kind.END, encode_payload(End(Finish.CUT, 200, reason)), End)
        assert type(told.reason) is str
        assert told.reason == reason


def test_every_word_has_its_place_in_the_relay_and_no_other_word_is_used_there() -> None:
    sources = {path: path.read_text() for path in RELAY.rglob("*.py")}
    used = {name for text in sources.values() for name in re.findall(r"\bRelayReason\.([A-Z_]+)\b", text)}
    assert used == {reason.name for reason in RelayReason}
    loose = re.compile(r'(?:HeadError|refuse|reject|fail|_break_off|_error_answer)\((?:[\w.]+, )*"[a-z_]+"')
    assert not {path.name: found for path, text in sources.items() if (found := loose.findall(text))}


def test_reasons_for_what_was_not_counted_are_label_values_by_their_names() -> None:
    assert [reason.value for reason in UnparsedReason] == [reason.name.lower() for reason in UnparsedReason]
    reader = AnswerReader("chat_completions", "text/event-stream")
    reader.feed(b"data: {nonsense\n\n")
    reader.finish()
    assert reader.unparsed == {"json": 1}
    assert all(type(word) is str for word in reader.unparsed)
