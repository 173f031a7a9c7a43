"""The kit's real services in a thread, for tests and benchmarks."""

import threading
import time
from contextlib import contextmanager

from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Chunk
from factkit.gpu import search_service

MANIFEST = {"name": "animals", "entries": 6}
TEXTS = {
    "Fox_sentences_0_2": "Fox\nThe red fox jumps.\nA fox sleeps in its den.",
    "Fox_sentences_3_5": "Fox\nNo fox is a wolf.",
    "Badger (mammal)": 'Badger (mammal)\nThe badger, or "brock", digs.',
    "Iron_sentences_0_2": "Iron\nIron is a metal;\nits symbol is Fe.",
    "Naïve, 漢字": "Naïve, 漢字\nA naïve title – of its own.",
    "alone": '"One line in quotes about gold."',
}
ENTRIES = [
    Chunk(name, name.partition("_sentences")[0], text, len(text.split()))
    for name, text in TEXTS.items()
]
INDEX = CorpusIndex(ENTRIES)


def until(true):
    """Wait for it; a minute and a half at most, however busy the machine."""
    for _ in range(9000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


@contextmanager
def served(app, port=0):
    """A service's URL, while it is up."""
    listening = search_service.bind_socket("127.0.0.1", port, "")
    server = search_service.create_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving_index(index=INDEX, token="", port=0):
    """The URL of a search service, while it is up."""
    with served(search_service.service(index, MANIFEST, token), port) as url:
        yield f"{url}/retrieve"


class Spy:
    """An index that keeps its queries, and lets a test hold or fail a search."""

    def __init__(self, before=lambda query: None):
        self.queries, self.before = [], before

    def search(self, query, k):
        self.queries.append(query)
        self.before(query)
        return INDEX.search(query, k)
