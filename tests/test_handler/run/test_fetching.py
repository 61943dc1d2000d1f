"""Archives from elsewhere: the packages that are missing, and an S3 that is there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from interpool.handler.errors import ServeError
from interpool.handler.run.fetching import fetched

CONTENT = b"an archive"
BUCKET = "models"


def content(url: str) -> bytes:
    with fetched(url) as path:
        assert path.suffix == ".mar"
        return path.read_bytes()


def test_any_file_system_of_fsspec_will_do() -> None:
    fsspec.filesystem("memory").pipe_file("/models/price.mar", CONTENT)
    assert content("memory://models/price.mar") == CONTENT


def test_a_downloaded_archive_is_removed_when_it_is_not_needed_any_more() -> None:
    fsspec.filesystem("memory").pipe_file("/models/price.mar", CONTENT)
    with fetched("memory://models/price.mar") as path:
        assert path.exists()
    assert not path.parent.exists()


@pytest.mark.parametrize(("url", "package"), [("s3://models/a.mar", "s3fs"), ("gs://models/a.mar", "gcsfs")])
def test_without_a_file_systems_package_it_says_what_to_install(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, url.partition(":")[0], raising=False)
    with pytest.raises(ServeError, match=rf"^{url} needs a package that is missing here: .*nstall {package}"):
        content(url)


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ServeError, match=r"missing here: pip install 'interpool\[ray\]'"):
        content("s3://models/a.mar")


def test_an_unknown_file_system_is_named() -> None:
    with pytest.raises(ServeError, match=r"^odd://models/a.mar cannot be fetched: .*Protocol not known: odd"):
        content("odd://models/a.mar")


@pytest.mark.parametrize(
    "said",
    [
        "https://host/a.mar?sig=secret",
        "https://host/a.mar?sig=se%63ret#secret",
        "https://user:secret@other/a.mar?sig=secret&more",
        "'https://host/a.mar?sig=secret'",
    ],
)
def test_no_secret_of_a_url_is_said_however_the_client_writes_it(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_where: str) -> None:
        raise OSError(f"403, message='Forbidden', url={said}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(ServeError, match=r"^https://host/a.mar cannot be fetched: OSError: 403") as refused:
        content("https://host/a.mar?sig=secret")
    assert "secret" not in str(refused.value)
    assert "se%63ret" not in str(refused.value)
    assert "/a.mar" in str(refused.value).partition("url=")[2]


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """An S3 on this machine, with a bucket; its address and credentials are in the environment."""
    pytest.importorskip("s3fs")
    from werkzeug.serving import make_server

    server = pytest.importorskip("moto.server")
    running = make_server("127.0.0.1", 0, server.DomainDispatcherApplication(server.create_backend_app))
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{running.server_port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "anyone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        files = fsspec.filesystem("s3")
        files.mkdir(BUCKET)
        files.pipe_file(f"{BUCKET}/price-1.mar", CONTENT)
        yield
        running.shutdown()
        thread.join()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the server's own
@pytest.mark.usefixtures("s3")
class TestS3:
    def test_an_archive_is_fetched(self) -> None:
        assert content(f"s3://{BUCKET}/price-1.mar") == CONTENT

    @pytest.mark.parametrize("path", [f"{BUCKET}/absent.mar", "absent/price-1.mar"])
    def test_an_absent_file_is_named(self, path: str) -> None:
        with pytest.raises(ServeError, match=rf"^s3://{path} cannot be fetched: FileNotFoundError: "):
            content(f"s3://{path}")

    def test_without_credentials_it_says_that_they_are_missing(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
        fsspec.filesystem("s3").clear_instance_cache()
        with pytest.raises(ServeError, match="Unable to locate credentials"):
            content(f"s3://{BUCKET}/price-1.mar")
