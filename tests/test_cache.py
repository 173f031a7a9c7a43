"""The cache of answers: a fault in it costs what it holds, never an answer."""

import gc
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from factkit.cache import FILE, Cache
from factkit.llm import LLM, Reply, Request


class Parrot:
    """A local model that answers with the prompt, and counts what it is asked."""

    name = "parrot"
    asked = 0

    def generate(self, requests):
        for i, request in enumerate(requests):
            self.asked += 1
            yield [(i, Reply(request.messages[0]["content"]))]


def requests(prompts):
    return [Request(({"role": "user", "content": prompt},)) for prompt in prompts]


def ask(folder, *prompts):
    """The replies, and how often the model was asked."""
    parrot = Parrot()
    replies = LLM(parrot, folder).run(requests(prompts or ["p"]))
    return [reply.text for reply in replies], parrot.asked


@pytest.fixture
def full(tmp_path):
    """The folder of a cache that holds an answer."""
    folder = tmp_path / "llm"
    assert ask(folder) == (["p"], 1)
    assert ask(folder) == (["p"], 0)
    return folder


def change(folder, sql, *values):
    with sqlite3.connect(folder / FILE) as database:
        database.execute(sql, values)
    database.close()


def cut(folder):
    os.truncate(folder / FILE, (folder / FILE).stat().st_size // 2)


FAULTS = {
    "not a database": lambda folder: (folder / FILE).write_bytes(b"text " * 2000),
    "malformed|not a database": cut,
    "no such column": lambda folder: change(
        folder, "ALTER TABLE Answers RENAME COLUMN value TO other"
    ),
}


@pytest.mark.parametrize("why", FAULTS)
def test_a_damaged_cache_is_named_and_set_aside(full, why):
    for n in (1, 2):
        gc.collect()  # closes the connections, which moves the log into the file
        FAULTS[why](full)
        with pytest.warns(UserWarning, match=f"{full}: .*({why}).*llm.damaged-{n}"):
            assert ask(full) == (["p"], 1)
        assert ask(full) == (["p"], 0)
        assert (full.parent / f"llm.damaged-{n}" / FILE).exists()


def test_many_that_open_a_damaged_cache_at_once_set_it_aside_once(full):
    gc.collect()
    FAULTS["not a database"](full)
    with pytest.warns(UserWarning, match="damaged"), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Cache(full).keep("key", 1), range(8)))
    folders = sorted(path.name for path in full.parent.glob("llm*") if path.is_dir())
    assert folders == ["llm", "llm.damaged-1"]


def test_an_entry_that_is_no_reply_is_asked_for_again(full):
    for entry in (
        *("1", '"text"', "[]", "{}", "no JSON", b"\x80\x04K\x01."),
        *('{"text": null}', '{"text": 3}', '{"text": "x", "colour": 1}'),
        *(f'{{"text": "x", "prompt_tokens": {n}}}' for n in ("null", '"7"', "1.5")),
    ):
        change(full, "UPDATE Answers SET value = ?", entry)
        with pytest.warns(UserWarning, match="not read"):
            assert ask(full) == (["p"], 1)
        assert ask(full) == (["p"], 0)


def test_a_cache_that_is_cut_while_it_is_used_costs_no_answer(tmp_path):
    llm = LLM(Parrot(), tmp_path / "llm")
    texts = [f"{i} " * 9999 for i in range(99)]
    llm.run(requests(texts))
    for log in (tmp_path / "llm").glob(f"{FILE}-*"):
        log.unlink()
    cut(tmp_path / "llm")
    with pytest.warns(UserWarning, match="llm: not"):
        assert [r.text for r in llm.run(requests([*texts, "new"]))] == [*texts, "new"]


def test_a_cache_that_cannot_be_written_costs_no_answer(tmp_path):
    llm = LLM(Parrot(), tmp_path / "llm")
    llm._cache._database.execute("PRAGMA query_only = ON")
    with pytest.warns(UserWarning, match="not cached: attempt to write a readonly"):
        assert llm.run(requests(["p"]))[0].text == "p"


def test_any_text_of_any_length_is_kept_as_it_was(tmp_path):
    texts = ["half \ud83d", "\x00", os.urandom(2_000_000).hex()]
    assert ask(tmp_path, *texts) == (texts, 3)
    assert ask(tmp_path, *texts) == (texts, 0)


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from test_cache import ask
me, folder = int(sys.argv[1]), sys.argv[2]
texts = [f"{who}{i}" for who in ("shared", f"own{me}-") for i in range(50)]
assert ask(folder, *texts)[0] == texts
"""


def test_processes_at_once_do_not_harm_the_cache(tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(n), str(tmp_path), *sys.path]
        )
        for n in range(8)
    ]
    assert [writer.wait(300) for writer in writers] == [0] * 8
    names = [f"own{me}-{i}" for me in range(8) for i in range(50)]
    names += [f"shared{i}" for i in range(50)]
    assert ask(tmp_path, *names) == (names, 0)
