"""Veri-R1's files come whole or not at all, and go on where they ended."""

import hashlib
import io
import tarfile
import zipfile
from contextlib import contextmanager

import pytest
import tenacity
from web_server import answering

from factkit.data.examples import DataError
from factkit.papers.veri import data as claim_data
from factkit.papers.veri import fetch
from factkit.papers.veri.benchmarks import CORPUS_OF
from factkit.run import params, serving

TEXT = b"0123456789" * 50_000


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(serving, "wait_s", lambda state: 0.0)


@contextmanager
def serving_files(files, cut=(), ranges=True):
    """A server's URL and what it was asked: path and Range. Replies to the first
    requests end after so many bytes (`cut`)."""
    asked, cuts = [], list(cut)

    def reply(path, headers, body):
        name, wanted = path[1:], headers.get("Range", "bytes=0-")
        asked.append((name, wanted))
        if name not in files:
            return 404, "", {}
        start = int(wanted[6:-1]) if ranges else 0
        if start >= len(files[name]):
            return 416, "", {}
        left = files[name][start:]
        length = {"Content-Length": str(len(left))}
        return 206 if start else 200, left[: cuts.pop(0)] if cuts else left, length

    with answering(reply) as url:
        yield url, asked


def file_of(url, name="a.db", content=TEXT, path=""):
    digest = hashlib.sha256(content).hexdigest() if content else ""
    return fetch.File(path or name, f"{url}/{name}", digest, "none")


def test_what_is_cut_off_is_gone_on_with(tmp_path):
    with serving_files({"a.db": TEXT}, cut=[100_000, 50_000]) as (url, asked):
        path = fetch.download(file_of(url), tmp_path)
        assert path == tmp_path / "a.db" and path.read_bytes() == TEXT
        starts = [int(wanted[6:-1]) for _, wanted in asked]
        assert starts == sorted(set(starts)) and starts[1] > 0  # no byte twice
        fetch.download(file_of(url), tmp_path)
        assert len(asked) == 3  # it is there
    assert list(tmp_path.iterdir()) == [path]


def test_another_run_goes_on_with_what_one_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tenacity, "stop_after_attempt", lambda n: tenacity.stop_all())
    with serving_files({"a.db": TEXT}, cut=[100_000]) as (url, asked):
        with pytest.raises(DataError, match="continues where it ended") as error:
            fetch.download(file_of(url), tmp_path)
        assert f"{url}/a.db" in str(error.value) and "put the file at" in str(error)
        left = (tmp_path / "a.db.part").stat().st_size
        assert 0 < left <= 100_000
        fetch.download(file_of(url), tmp_path)
        assert asked[1] == ("a.db", f"bytes={left}-")
    assert (tmp_path / "a.db").read_bytes() == TEXT


def test_a_server_that_knows_no_ranges_gives_it_all_again(tmp_path):
    with serving_files({"a.db": TEXT}, cut=[100_000], ranges=False) as (url, _):
        assert fetch.download(file_of(url), tmp_path).read_bytes() == TEXT


def test_a_part_that_was_whole_is_taken(tmp_path):
    (tmp_path / "a.db.part").write_bytes(TEXT)
    with serving_files({"a.db": TEXT}) as (url, _):
        assert fetch.download(file_of(url), tmp_path).read_bytes() == TEXT


def test_another_content_or_address_is_refused_and_leaves_nothing(tmp_path):
    with serving_files({"a.db": TEXT}) as (url, _):
        with pytest.raises(DataError, match="SHA-256"):
            fetch.download(file_of(url, content=b"other"), tmp_path)
        with pytest.raises(DataError, match="404"):
            fetch.download(file_of(url, "b.db"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def zipped(**contents):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, content in contents.items():
            packed.writestr(name.replace("_", "."), content)
    return made.getvalue()


def tarred(name, content):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def test_an_archive_gives_the_file_of_the_paths_name(tmp_path):
    damaged = bytearray(zipped(c_db=TEXT))
    damaged[5_000] ^= 1
    files = {
        "a.zip": zipped(a_db=TEXT, other=b""),
        "b.tar.gz": tarred("data/b.db", TEXT),
        "c.zip": bytes(damaged),
        "d.zip": zipped(other=b""),
    }
    with serving_files(files) as (url, _):
        for name in ("a.zip", "b.tar.gz"):
            path = f"{name[0]}.db"
            file = file_of(url, name, b"", path)
            assert fetch.download(file, tmp_path).read_bytes() == TEXT
            assert not (tmp_path / name).exists()
        with pytest.raises(DataError, match="BadZipFile: Bad CRC-32"):
            fetch.download(file_of(url, "c.zip", b"", "c.db"), tmp_path)
        assert not (tmp_path / "c.zip").exists() and not (tmp_path / "c.db").exists()
        with pytest.raises(DataError, match="holds no d.db"):
            fetch.download(file_of(url, "d.zip", b"", "d.db"), tmp_path)


def test_the_files_are_those_that_the_paper_s_claims_are_read_from():
    paths = {file.path.removesuffix(".zip") for file in fetch.FILES}
    p = params.load("veri", "h100_full")
    sets = {claim_data.EVALUATION.format(set=name) for name in p.eval_sets.split()}
    assert paths == {claim_data.PUBLISHED, *sets, *CORPUS_OF.values()}
    assert all(file.url.startswith("https://") for file in fetch.FILES)
