"""The admin listener behind TLS and credentials, as the whole sidecar serves it, over real sockets."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from tests.fakes.certificate import self_signed

from prefillwatch.cli import main
from prefillwatch.export.admin_auth import Credentials

pytestmark = pytest.mark.apart

TOKEN = "correct-horse-battery"
LOGIN = "prometheus:päss:word"
GUARDED = ("/metrics", "/", "/api/state", "/api/incidents", "/no/such/page")


class Sidecar:
    """A running `serve` whose upstream is nobody."""

    def __init__(self, process: subprocess.Popen[str], certificate: Path, key: Path) -> None:
        self.process = process
        self.certificate = certificate
        self.key = key
        self.said = ""
        assert process.stderr is not None
        while not (found := re.search(r"metrics: (https://([\d.:]+))/metrics", self.said)):
            line = process.stderr.readline()
            assert line, self.said
            self.said += line
        self.url, self.admin = found.groups()

    def get(self, path: str, *, auth: tuple[str, str] | None = None, **headers: str) -> httpx.Response:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.get(self.url + path, headers=headers, auth=auth, verify=context, trust_env=False, timeout=20)

    def healthcheck(self, *arguments: str) -> Result:
        tls = ("--admin-tls-cert", str(self.certificate), "--admin-tls-key", str(self.key))
        return CliRunner().invoke(main, ["healthcheck", "--admin", self.admin, *tls, *arguments])


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("admin")
    certificate, key = self_signed(folder)
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "login").write_text(LOGIN + "\n")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PREFILLWATCH_")},
        "PREFILLWATCH_ADMIN_TLS_CERT": str(certificate),
        "PREFILLWATCH_ADMIN_TLS_KEY": str(key),
        "PREFILLWATCH_ADMIN_BEARER_TOKEN_FILE": str(folder / "token"),
        "PREFILLWATCH_ADMIN_BASIC_AUTH_FILE": str(folder / "login"),
    }
    arguments = ["serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "prefillwatch", *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        running = Sidecar(process, certificate, key)
        yield running
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=20)
    assert process.returncode == 0
    for secret in (TOKEN, LOGIN, "päss"):
        assert secret not in running.said + rest


def test_health_and_readiness_are_open_to_probes(sidecar: Sidecar) -> None:
    assert sidecar.get("/healthz").status_code == 200
    assert sidecar.get("/readyz").status_code == 503


@pytest.mark.parametrize("path", GUARDED)
def test_nothing_else_is_shown_without_credentials(sidecar: Sidecar, path: str) -> None:
    answer = sidecar.get(path)
    assert answer.status_code == 401
    assert answer.headers.get_list("www-authenticate") == [
        'Bearer realm="prefillwatch"',
        'Basic realm="prefillwatch", charset="UTF-8"',
    ]
    assert answer.headers["x-frame-options"] == "DENY"
    assert "prefillwatch_up" not in answer.text


def test_nothing_is_written_without_credentials(sidecar: Sidecar) -> None:
    context = ssl.create_default_context(cafile=str(sidecar.certificate))
    for headers, status in ({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 409):
        answer = httpx.post(f"{sidecar.url}/api/flight", headers=headers, verify=context, trust_env=False, timeout=20)
        assert answer.status_code == status


def test_the_token_opens(sidecar: Sidecar) -> None:
    answer = sidecar.get("/metrics", Authorization=f"Bearer {TOKEN}")
    assert answer.status_code == 200
    assert "prefillwatch_up 0" in answer.text
    assert sidecar.get("/api/state", Authorization=f"bearer {TOKEN}").status_code == 200


def test_user_and_password_open(sidecar: Sidecar) -> None:
    user, _, password = LOGIN.partition(":")
    assert sidecar.get("/", auth=(user, password)).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer",
        "",
        TOKEN,
        f"Basic {TOKEN}",
        f"Digest {TOKEN}",
        "Basic cHJvbWV0aGV1czo=",
    ],
)
def test_what_is_nearly_right_does_not(sidecar: Sidecar, header: str) -> None:
    assert sidecar.get("/metrics", Authorization=header).status_code == 401


def test_other_spellings_of_an_open_path_open_nothing(sidecar: Sidecar) -> None:
    for path in ("/healthz/../metrics", "//healthz", "/healthz/", "/metrics?/healthz", "/healthz%2f..%2fmetrics"):
        assert "prefillwatch_up" not in sidecar.get(path).text


def test_plain_http_is_not_answered(sidecar: Sidecar) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{sidecar.admin}/healthz", trust_env=False)


def test_healthcheck_still_works(sidecar: Sidecar) -> None:
    alive = sidecar.healthcheck()
    assert alive.exit_code == 0, alive.output
    ready = sidecar.healthcheck("--ready")
    assert ready.exit_code == 1
    assert "upstream does not answer" in ready.output


def test_secrets_are_in_no_command_line(sidecar: Sidecar) -> None:
    pids = {
        process["pid"] for process in sidecar.get("/api/state", Authorization=f"Bearer {TOKEN}").json()["processes"]
    }
    assert len(pids) == 3
    for pid in pids:
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid}/{name}").read_bytes()
            assert TOKEN.encode() not in shown
            assert LOGIN.encode() not in shown


def test_credentials_do_not_show_themselves() -> None:
    assert TOKEN not in repr(Credentials(TOKEN, LOGIN))


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [
        ("--admin-bearer-token-file", "", "must hold the secret in one line"),
        ("--admin-bearer-token-file", "one\ntwo\n", "must hold the secret in one line"),
        ("--admin-basic-auth-file", "hunter2", "must hold one line USER:PASSWORD"),
        ("--admin-basic-auth-file", ":hunter2", "must hold one line USER:PASSWORD"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused_and_not_quoted(
    tmp_path: Path, flag: str, content: str, message: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    result = CliRunner().invoke(main, ["serve", "--upstream", "http://127.0.0.1:1", flag, str(path)])
    assert result.exit_code == 2
    assert message in result.output
    assert str(path) in result.output
    assert "hunter2" not in result.output


def test_certificate_and_key_belong_together(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    certificate, _ = self_signed(tmp_path / "a")
    _, other = self_signed(tmp_path / "b")
    arguments = ["--admin-tls-cert", str(certificate), "--admin-tls-key", str(other)]
    result = CliRunner().invoke(main, ["serve", "--upstream", "http://127.0.0.1:1", *arguments])
    assert result.exit_code == 2
    assert "admin_tls_cert" in result.output
