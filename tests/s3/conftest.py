"""One server for all tests here; each test has a prefix of its own in one bucket."""

from __future__ import annotations

import uuid

import pytest

from datacheck.cache import obstore_client
from tests.s3.server import BUCKET, Proxy, Server, environment


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("weed") / "s")
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(server.port).items():
            patch.setenv(name, value)
        server.make_bucket(BUCKET)
        yield server
    server.remove()


@pytest.fixture(autouse=True)
def _settled(server):
    yield
    obstore_client._cached_client.cache_clear()


@pytest.fixture
def proxy(server, monkeypatch):
    """What is between the server and what is tested."""
    proxy = Proxy(server.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


@pytest.fixture
def hasty(monkeypatch):
    """Do not try for long."""
    obstore_client._cached_client.cache_clear()
    monkeypatch.setattr(obstore_client, "_RETRIES", 1)
    monkeypatch.setattr(obstore_client, "_TIMEOUT_S", 2)


def fresh() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def url():
    return fresh()
