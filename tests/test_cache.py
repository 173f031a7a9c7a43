"""The cache of answers: a fault in it costs what it holds, never an answer."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from factkit.cache import FILE, Cache


@pytest.fixture
def full(tmp_path):
    """The folder of a cache that holds an answer."""
    Cache(tmp_path / "llm").keep("key", {"text": "p"})
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
        list(pool.map(lambda i: Cache(full).keep(f"key {i}", i), range(8)))
    assert [Cache(full).kept(f"key {i}") for i in range(8)] == list(range(8))
    assert Cache(full).kept("key") is None
    assert len([path for path in full.parent.glob("llm*") if path.is_dir()]) == 2


def test_a_cache_that_is_cut_while_open_costs_no_answer(tmp_path):
    cache = Cache(tmp_path / "llm")
    for i in range(99):
        cache.keep(str(i), f"{i} " * 9999)
    for log in (tmp_path / "llm").glob(f"{FILE}-*"):
        log.unlink()
    cut(tmp_path / "llm")
    with pytest.warns(UserWarning, match="llm: not"):
        assert {cache.kept(str(i)) for i in range(99)} <= {
            None,
            *(f"{i} " * 9999 for i in range(99)),
        }
        cache.keep("new", 1)
