"""The server that an experiment is made against: reached, its model found, and spoken to in the words it knows."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from prefillwatch import __version__
from prefillwatch.engine import model_list
from prefillwatch.engine.model_list import ServedModel
from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.client import CHAT, Answer, ask
from prefillwatch.settings.addresses import UNIX, parse_upstream

COMPLETIONS: Final = "/v1/completions"
TOKENIZE: Final = "/tokenize"
#: Seconds that a question without a prompt may take.
PATIENCE_S: Final = 20.0


class TargetError(PrefillwatchError):
    """The server cannot be reached, is of another kind, or refuses what the experiment needs."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What of the interface a server knows; OpenAI-compatible servers differ in little things."""

    #: An answer can be made to go on to its token limit.
    ignore_eos: bool = True
    limit_name: str = "max_tokens"
    #: Token counts come with a stream when asked for.
    usage: bool = True
    #: A base model has no chat template: its prompts go to /v1/completions as they are.
    chat: bool = True

    @property
    def path(self) -> str:
        return CHAT if self.chat else COMPLETIONS

    def prompt(self, text: str) -> dict[str, Any]:
        """The text as a request has it, and as /tokenize counts it."""
        return {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": text}


#: From the richest to the poorest; vLLM and SGLang know the first, a strict server one of the others.
DIALECTS: Final = (
    Dialect(),
    Dialect(ignore_eos=False),
    Dialect(ignore_eos=False, limit_name="max_completion_tokens"),
    Dialect(ignore_eos=False, usage=False),
    Dialect(chat=False),
    Dialect(chat=False, ignore_eos=False, usage=False),
)


@dataclass(frozen=True, slots=True)
class Target:
    """One model of a server. Copies of it are cheap; it holds no connection."""

    #: Without a slash at the end and without /v1; it never holds credentials.
    url: str
    model: str
    #: Most tokens of prompt and answer together, where the server tells.
    max_model_len: int | None = None
    dialect: Dialect = Dialect()
    #: Sent with every request; the API key is among them, so they belong in no report.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def body(self, text: str, max_tokens: int, *, whole: bool = False, user: str = "") -> dict[str, Any]:
        """A request for an answer to the text, streaming unless it shall come `whole`. ``user``: on whose behalf."""
        body: dict[str, Any] = {"model": self.model, **self.dialect.prompt(text)}
        body[self.dialect.limit_name] = max_tokens
        if self.dialect.ignore_eos:
            body["ignore_eos"] = True
        if user:
            body["user"] = user
        if not whole:
            body["stream"] = True
            if self.dialect.usage:
                body["stream_options"] = {"include_usage": True}
        return body

    async def ask(
        self,
        body: Mapping[str, Any] | None,
        *,
        path: str | None = None,
        timeout_seconds: float = 600.0,
        answer: Answer | None = None,
    ) -> Answer:
        """See `client.ask`: POST `body`, or GET where it is None. Without a path it is a request for an answer."""
        return await ask(
            self.url,
            body,
            path=path or self.dialect.path,
            headers=self.headers,
            timeout_seconds=timeout_seconds,
            tls=self.tls,
            answer=answer,
        )

    def speaking(self, dialect: Dialect) -> Target:
        return replace(self, dialect=dialect)


async def reach(
    url: str,
    *,
    api_key: str | None = None,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    insecure: bool = False,
) -> Target:
    """The server at `url`, and `model` of it or else its first one. Costs no tokens: only /v1/models is asked.

    A server without /v1/models is taken at its word where `model` is given. Raises ConfigError for what cannot be an
    address, TargetError when the server does not answer as it should.
    """
    base = _base(url)
    sent = {"User-Agent": f"prefillwatch/{__version__}", **(headers or {})}
    if api_key:
        sent["Authorization"] = f"Bearer {api_key}"
    _check_headers(sent)
    target = Target(base, model or "", headers=sent, tls=_trust(base, ca_file, insecure))
    answer = await target.ask(None, path=model_list.PATH, timeout_seconds=PATIENCE_S)
    cards = _cards(target, answer, may_be_missing=bool(model))
    card = _choose(cards, base, model)
    return replace(target, model=card.id, max_model_len=card.context_tokens)


def _base(url: str) -> str:
    if url.startswith(UNIX):
        try:
            return parse_upstream(url)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is not a server's address; write http://HOST:PORT, https://HOST or unix:/PATH")
    if parts.username or parts.password:
        raise ConfigError("the address holds a user or password; give a key by --api-key or PREFILLWATCH_API_KEY")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name.isascii() or not (name + value).isprintable() or not value.isascii():
            raise ConfigError(f"the header {name!r} holds characters that no HTTP header may have")


def _trust(base: str, ca_file: Path | None, insecure: bool) -> ssl.SSLContext | None:
    if not base.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{ca_file}: no certificates of authorities can be read from it ({error})") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _cards(target: Target, answer: Answer, *, may_be_missing: bool) -> list[ServedModel]:
    if answer.error:
        raise TargetError(f"no answer from {target.url} ({answer.error}); is the server up, and there?")
    if answer.status in (401, 403):
        raise TargetError(
            f"{target.url} wants a key (HTTP {answer.status}); give it by --api-key-file or PREFILLWATCH_API_KEY"
        )
    try:
        if answer.status == 200:
            return model_list.served_models(answer.body)
    except msgspec.DecodeError:
        pass
    if may_be_missing and answer.status in (404, 405):
        return []
    said = f"HTTP {answer.status}" if answer.status != 200 else "something else than a list of models"
    raise TargetError(
        f"{target.url}{model_list.PATH} answers {said}; the address must be that of an OpenAI-compatible server, "
        "without /v1"
    )


def _choose(cards: list[ServedModel], base: str, model: str | None) -> ServedModel:
    if model is None:
        if not cards:
            raise TargetError(f"{base} serves no model, by its {model_list.PATH}; name one by --model")
        return cards[0]
    if not cards:
        return ServedModel(model)
    for card in cards:
        if card.id == model:
            return card
    known = ", ".join(card.id for card in cards[:8])
    raise TargetError(f"{base} does not serve {model!r}; it serves {known}")


def refusal(answer: Answer) -> str:
    """Why a request got no proper answer, in the server's own words where it has some; empty when it did.

    Only for requests whose text is made up: servers may quote it.
    """
    if answer.error:
        return answer.error
    if answer.status == 200:
        return ""
    return f"HTTP {answer.status}{_said(answer.body)}"


def _said(body: bytes) -> str:
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    inner = fields.get("error", fields) if isinstance(fields, dict) else {}
    text = inner.get("message") or inner.get("detail") if isinstance(inner, dict) else inner
    return f": {str(text)[:300]}" if text else ""
