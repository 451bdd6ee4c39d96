"""Another certificate while a relay runs."""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.fakes.certificate import in_one_file, self_signed
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.certificate import context_of, read_shared, shared_memory, write_shared


@pytest.fixture
def pems(tmp_path: Path) -> tuple[bytes, bytes]:
    """Two certificates with their keys."""
    return in_one_file(tmp_path).read_bytes(), in_one_file(tmp_path).read_bytes()


@pytest.fixture
def memory(pems: tuple[bytes, bytes]) -> Iterator[int]:
    fd = shared_memory()
    write_shared(fd, pems[0])
    yield fd
    os.close(fd)


def greeted(relay: RunningRelay) -> tuple[Peer, bytes]:
    """A client that is connected, and the certificate that it was shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    wrapped = context.wrap_socket(relay.connect().socket, suppress_ragged_eofs=False)
    return Peer(wrapped), wrapped.getpeercert(binary_form=True) or b""


def der(pem: bytes) -> bytes:
    text = pem.decode()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(begin + text.partition(begin)[2].partition(end)[0] + end)


def test_new_connections_get_the_new_one_and_a_stream_goes_on(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, pems: tuple[bytes, bytes], memory: int
) -> None:
    relay = start(tls_fd=memory)
    client, shown = greeted(relay)
    assert shown == der(pems[0])
    with closing(client):
        client.send(post())
        server = upstream.accept()
        server.head()
        server.send(STREAM_HEAD + chunk(event(1)))
        client.until(chunk(event(1)))
        write_shared(memory, pems[1])
        relay.relay.reactor.call_from_thread(relay.relay.renew_certificate)

        def is_renewed() -> bool:
            other, shown = greeted(relay)
            other.close()
            return shown == der(pems[1])

        assert eventually(is_renewed)
        server.send(chunk(event(2)) + LAST_CHUNK)
        client.until(chunk(event(2)) + LAST_CHUNK)


@pytest.mark.parametrize("put_down", [b"nothing of use", b""], ids=["no certificate", "nothing"])
def test_what_is_no_certificate_leaves_the_one_before(
    start: Callable[..., RunningRelay], pems: tuple[bytes, bytes], memory: int, put_down: bytes
) -> None:
    relay = start(tls_fd=memory)
    write_shared(memory, put_down)
    relay.relay.renew_certificate()
    client, shown = greeted(relay)
    client.close()
    assert shown == der(pems[0])


def test_what_is_half_written_is_not_read(pems: tuple[bytes, bytes], memory: int) -> None:
    assert read_shared(memory) == pems[0]
    head = len(pems[1]).to_bytes(8, "big") + hashlib.sha256(pems[1]).digest()
    os.pwrite(memory, head + pems[1][:100], 0)
    assert read_shared(memory) is None
    write_shared(memory, pems[1])
    assert read_shared(memory) == pems[1]
    write_shared(memory, b"short")
    assert read_shared(memory) == b"short"


def test_a_key_with_a_passphrase_does_not_ask_the_terminal(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = self_signed(tmp_path)
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(ssl.SSLError):
        context_of(certificate.read_bytes() + locked)
