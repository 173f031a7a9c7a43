"""The cache of answers: what lies in its folder is JSON, or it is not used."""

import json
import os
import pickle
import shutil
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor

import diskcache
import pytest

from factkit.cache import Cache
from factkit.llm import LLM, Reply, Request, cache_key


class Parrot:
    """A local model that answers with the prompt, and counts what it is asked."""

    name = "parrot"
    asked = 0

    def generate(self, requests):
        for i, request in enumerate(requests):
            self.asked += 1
            yield [(i, Reply(request.messages[0]["content"]))]


def request(prompt="p"):
    return Request(({"role": "user", "content": prompt},))


def ask(folder, prompt="p"):
    """The reply, and how often the model was asked."""
    parrot = Parrot()
    return LLM(parrot, folder).run([request(prompt)])[0].text, parrot.asked


class Bomb:
    """What a pickle makes of it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "llm"


@pytest.fixture
def full(folder):
    """A cache that holds an answer."""
    assert ask(folder) == ("p", 1)
    assert ask(folder) == ("p", 0)
    return folder


def rows(folder, change, *values):
    with sqlite3.connect(folder / "cache.db") as database:
        database.execute(change, values)
    database.close()


def old_kind(folder):
    shutil.rmtree(folder)
    with diskcache.Cache(str(folder)) as cache:
        cache["p"] = {"text": "planted"}


def shorter(folder):
    file = folder / "cache.db"
    for log in folder.glob("cache.db-*"):
        log.unlink()
    os.truncate(file, file.stat().st_size // 2)


def other_tables(folder):
    rows(folder, "DROP TABLE Settings")


FAULTS = {
    "diskcache's usual kind": (old_kind, "another kind"),
    "no SQLite": (
        lambda folder: (folder / "cache.db").write_bytes(b"text " * 2000),
        "damaged.*not a database",
    ),
    "empty": (lambda folder: (folder / "cache.db").write_bytes(b""), "damaged"),
    "cut": (shorter, "damaged"),
    "other tables": (other_tables, "damaged.*no such table"),
    "a setting of no kind": (
        lambda folder: rows(folder, "INSERT INTO Settings VALUES ('disk_x', 1)"),
        "another kind",
    ),
    "a pickle": (
        lambda folder: rows(
            folder, "UPDATE Cache SET mode = 4, value = ?", pickle.dumps({})
        ),
        "another kind",
    ),
    "a file": (
        lambda folder: rows(folder, "UPDATE Cache SET filename = '/etc/hostname'"),
        "another kind",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cache_that_is_damaged_or_of_another_kind_is_named_and_set_aside(full, fault):
    make, why = FAULTS[fault]
    make(full)
    with pytest.warns(UserWarning, match=f"{full}: .*{why}.*llm.damaged-1"):
        assert ask(full) == ("p", 1)
    assert ask(full) == ("p", 0)
    make(full)
    with pytest.warns(UserWarning, match="damaged-2"):
        assert ask(full) == ("p", 1)
    assert (full.parent / "llm.damaged-1" / "cache.db").exists()


def pickled(folder, bomb):
    """A cache of diskcache's usual kind."""
    with diskcache.Cache(str(folder)) as cache:
        cache[cache_key("parrot", request())] = bomb


def planted(folder, bomb):
    """A cache of JSON, but for its rows."""
    ask(folder)
    rows(folder, "UPDATE Cache SET mode = 4, value = ?", pickle.dumps(bomb))


@pytest.mark.parametrize("make", [pickled, planted])
def test_a_cache_from_elsewhere_runs_no_code(folder, tmp_path, make):
    make(folder, Bomb(tmp_path / "ran"))
    with pytest.warns(UserWarning, match="another kind"):
        assert ask(folder) == ("p", 1)
    assert not (tmp_path / "ran").exists()


def test_a_row_that_turns_into_a_pickle_after_it_was_opened_runs_no_code(
    folder, tmp_path
):
    cache = Cache(folder)
    cache.keep("key", "value")
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    rows(folder, "UPDATE Cache SET mode = 4, value = ?", bomb)
    with pytest.warns(UserWarning, match="not read: an entry that is no JSON"):
        assert cache.kept("key", str) is None
    rows(folder, "UPDATE Cache SET key = ?, raw = 0", bomb)
    with pytest.raises(zlib.error):
        list(cache)
    assert not (tmp_path / "ran").exists()


def test_a_row_that_names_a_file_does_not_delete_it(folder, tmp_path):
    treasure = tmp_path / "treasure"
    treasure.touch()
    cache = Cache(folder)
    cache.keep("key", "value")
    rows(folder, "UPDATE Cache SET filename = ?", str(treasure))
    cache.keep("key", "other")
    assert treasure.exists()


@pytest.mark.parametrize(
    "entry",
    [
        *(1, "text", [], {}, {"text": None}, {"text": 3}, {"text": "x", "colour": 1}),
        *({"text": "x", "prompt_tokens": n} for n in (None, "7", 1.5, float("nan"))),
    ],
)
def test_an_entry_that_is_no_reply_is_asked_for_again(full, entry):
    cache = Cache(full)
    [key] = list(cache)
    cache.keep(key, entry)
    with pytest.warns(UserWarning, match="not read"):
        assert ask(full) == ("p", 1)
    assert ask(full) == ("p", 0)


def test_a_reply_is_kept_as_plain_json(full):
    with sqlite3.connect(full / "cache.db") as database:
        kinds = database.execute("SELECT mode, filename, raw FROM Cache").fetchall()
    database.close()
    assert kinds == [(1, None, 1)]
    cache = Cache(full)
    [key] = list(cache)
    assert json.loads(json.dumps(cache[key]))["text"] == "p"


def test_a_cache_that_is_cut_while_it_is_used_costs_no_answer(folder):
    llm = LLM(Parrot(), folder)
    requests = [
        Request(({"role": "user", "content": f"{i} " * 99},)) for i in range(99)
    ]
    expected = [reply.text for reply in llm.run(requests)]
    shorter(folder)
    with pytest.warns(UserWarning, match=str(folder)):
        assert [reply.text for reply in llm.run(requests)] == expected


def test_many_that_open_a_damaged_cache_at_once_set_it_aside_once(full):
    old_kind(full)
    with pytest.warns(UserWarning, match="another kind"), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Cache(full).keep("key", 1), range(8)))
    assert sorted(p.name for p in full.parent.glob("llm*") if p.is_dir()) == [
        *("llm", "llm.damaged-1")
    ]


def test_an_answer_beyond_a_megabyte_is_kept(folder):
    text = os.urandom(2_000_000).hex()
    cache = Cache(folder)
    cache.keep("key", text)
    assert cache.kept("key", str) == text
