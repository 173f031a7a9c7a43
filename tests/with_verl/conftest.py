"""`make test-verl`: collected only where verl is installed."""

import importlib.metadata
import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
try:
    importlib.metadata.version("verl")
except importlib.metadata.PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
