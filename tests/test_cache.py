"""The cache of answers: a fault in it costs what it holds, never an answer."""

import gc
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from factkit.run.cache import FILE, Cache


@pytest.fixture
def full(tmp_path):
    """The folder of a cache that holds an answer."""
    Cache(tmp_path / "llm").set("key", {"text": "p"})
    gc.collect()  # closes the connection, which moves the log into the file
    return tmp_path / "llm"


def cut(folder):
    os.truncate(folder / FILE, (folder / FILE).stat().st_size // 2)


def overwrite(folder):
    (folder / FILE).write_bytes(b"text " * 2000)


@pytest.mark.parametrize("damage", [cut, overwrite])
def test_a_damaged_cache_is_named_and_set_aside_once(full, damage):
    damage(full)
    damaged = pytest.warns(UserWarning, match=f"{full}: damaged, moved to llm.damaged-")
    with damaged, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: Cache(full).set(f"key {i}", i), range(8)))
    assert [Cache(full).get(f"key {i}") for i in range(8)] == list(range(8))
    assert Cache(full).get("key") is None
    assert len([path for path in full.parent.glob("llm*") if path.is_dir()]) == 2


def test_an_entry_that_is_no_json_is_none(full):
    with sqlite3.connect(full / FILE) as database:
        database.execute("UPDATE Answers SET value = 'no JSON'")
    with pytest.warns(UserWarning, match="not read"):
        assert Cache(full).get("key") is None


def test_a_cache_that_is_cut_or_cannot_be_written_costs_no_answer(tmp_path):
    cache = Cache(tmp_path / "llm")
    for i in range(99):
        cache.set(str(i), f"{i} " * 9999)
    for log in (tmp_path / "llm").glob(f"{FILE}-*"):
        log.unlink()
    cut(tmp_path / "llm")
    with pytest.warns(UserWarning, match="llm: not"):
        assert {cache.get(str(i)) for i in range(99)} <= {
            None,
            *(f"{i} " * 9999 for i in range(99)),
        }
        cache.set("new", 1)
    cache = Cache(tmp_path / "other")
    cache._database.execute("PRAGMA query_only = ON")
    with pytest.warns(UserWarning, match="not cached: attempt to write a readonly"):
        cache.set("key", 1)


def test_any_text_of_any_length_is_kept_as_it_was(tmp_path):
    for text in ("half \ud83d", "\x00", os.urandom(2_000_000).hex()):
        Cache(tmp_path).set("key", text)
        assert Cache(tmp_path).get("key") == text


WRITER = """
import sys
from pathlib import Path
from factkit.run.cache import Cache
me, cache = sys.argv[1], Cache(Path(sys.argv[2]))
for i in range(50):
    for key in (f"shared{i}", f"own{me}-{i}"):
        assert cache.get(key) in (None, key)
        cache.set(key, key)
"""


def test_processes_at_once_do_not_harm_the_cache(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(n), str(tmp_path)])
        for n in range(6)
    ]
    assert [writer.wait(300) for writer in writers] == [0] * 6
    keys = [f"own{me}-{i}" for me in range(6) for i in range(50)]
    keys += [f"shared{i}" for i in range(50)]
    assert [Cache(tmp_path).get(key) for key in keys] == keys
