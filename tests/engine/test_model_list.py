"""What a server says of the models it serves."""

from __future__ import annotations

import msgspec
import pytest

from prefillwatch.engine.model_list import served_models


def test_names_in_the_servers_order_and_how_much_each_takes() -> None:
    cards = [{"id": "b", "max_model_len": 4096}, {"id": "a", "owned_by": "x"}, {"id": "c", "max_model_len": "?"}]
    models = served_models(msgspec.json.encode({"object": "list", "data": cards}))
    assert [(model.id, model.context_tokens) for model in models] == [("b", 4096), ("a", None), ("c", None)]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data":[{"name":"a"}]}', b'{"data":null}'])
def test_what_is_no_list_of_models_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        served_models(body)
