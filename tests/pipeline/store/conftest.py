"""Stores to test with: a folder, and a real S3 server in a process of its own, behind a proxy that spoils things."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import importlib.util
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.engine.cache import Cache
from pipeline.store.bucket import Bucket
from pipeline.store.shared import SharedStore

S3_PACKAGES = ("s3fs", "moto", "flask", "flask_cors")
FAULTS = ("cut", "error", "truncated", "altered", "slow")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class FaultProxy:
    """An HTTP proxy before `port` that spoils a share of the answers, in an order that its seed fixes."""

    port: int
    share: float
    rng: random.Random
    told: dict[str, int] = field(default_factory=dict)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def fault(self) -> str | None:
        with self.mutex:
            if self.rng.random() >= self.share:
                return None
            chosen = self.rng.choice(FAULTS)
            self.told[chosen] = self.told.get(chosen, 0) + 1
            return chosen

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def relay(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy.fault()
                if fault == "cut":
                    return self.hang_up()
                if fault == "error":
                    told = b"" if self.command == "HEAD" else b"<Error><Code>SlowDown</Code></Error>"
                    return self.answer(503, {}, told)
                upstream = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
                upstream.request(self.command, self.path, body, dict(self.headers))
                reply = upstream.getresponse()
                content = reply.read()
                upstream.close()
                headers = {name: value for name, value in reply.getheaders() if name.lower() not in _HOP}
                if self.command == "HEAD":
                    length = reply.getheader("Content-Length", "0")
                    return self.answer(reply.status, {**headers, "Content-Length": length}, b"")
                if fault == "slow":
                    time.sleep(0.05)
                if fault == "truncated" and content:
                    headers["Content-Length"] = str(len(content))
                    self.answer(reply.status, headers, content[: len(content) // 2])
                    return self.hang_up()
                if fault == "altered" and content and self.command == "GET":
                    content = content[:-1] + bytes([content[-1] ^ 1])
                self.answer(reply.status, {**headers, "Content-Length": str(len(content))}, content)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = relay

            def hang_up(self) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)  # a close would wait for what still reads from it

            def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None: ...

        with Server(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            server.shutdown()


_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive", "date", "server")


@contextlib.contextmanager
def s3_server() -> Iterator[int]:
    """moto's S3 server in a process of its own; yields its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def set_s3_environment(set_one: Callable[[str, str], None], endpoint: str) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "verysecretverysecret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        set_one(name, value)


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    missing = [name for name in S3_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; pip install s3fs 'moto[s3]' flask flask-cors")
    with s3_server() as port:
        yield port


@dataclass
class Lab:
    """A store and the caches of some machines in front of it."""

    url: str
    root: Path
    told: list[str] = field(default_factory=list)

    def store(self) -> SharedStore:
        return SharedStore(Bucket(self.url, sleep=lambda _: None), self.told.append)

    def machine(self, name: str) -> Cache:
        return Cache(self.root / name, self.told.append, self.store())


def make_entry(cache: Cache, step: str, key: str, files: dict[str, bytes]) -> None:
    """As a step would."""
    with cache.building(key, lambda: None):
        built = cache.fresh_folder(key)
        for name, content in files.items():
            (built / name).parent.mkdir(parents=True, exist_ok=True)
            (built / name).write_bytes(content)
        first = next(iter(files))
        cache.publish(step, key, built, {"ingredients": {"step": step}, "outputs": {"made": first}})


def make_bucket(endpoint: str, name: str) -> None:
    import boto3  # type: ignore[import-untyped] # comes with moto

    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)


@pytest.fixture(scope="session")
def sftp_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """And the home folder with the key that opens it."""
    if importlib.util.find_spec("paramiko") is None:
        pytest.skip("paramiko not installed; pip install 'tinyml-pipeline[store]'")
    from tests.pipeline.store.sftp_server import sftp_server

    home = tmp_path_factory.mktemp("home")
    with sftp_server(home) as port:
        yield port, home


def set_sftp_environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(params=["file", "s3", "sftp"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    if request.param == "file":
        return Lab(f"file://{tmp_path}/lab", tmp_path)
    if request.param == "sftp":
        port, home = request.getfixturevalue("sftp_port")
        set_sftp_environment(monkeypatch, home)
        return Lab(f"sftp://lab@127.0.0.1:{port}{tmp_path}/lab", tmp_path)
    port = request.getfixturevalue("s3_port")
    set_s3_environment(monkeypatch.setenv, f"http://127.0.0.1:{port}")
    bucket = f"b{abs(hash(str(tmp_path))) % 10**9}"
    make_bucket(f"http://127.0.0.1:{port}", bucket)
    return Lab(f"s3://{bucket}/lab", tmp_path)
