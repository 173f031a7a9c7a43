"""Which checkpoint a killed training goes on from: the newest that is whole."""

import json
import zipfile
from pathlib import Path

PARTS = {  # what a checkpoint must have → how the files may be called
    "weights": (".safetensors", "model_states.pt"),
    "optimizer": ("optimizer.pt", "optim_states.pt"),  # the second: DeepSpeed's
    "trainer_state.json": ("trainer_state.json",),  # written last
}


def last_whole(folder: Path) -> str | None:
    """The newest whole checkpoint, or None. One that is not whole is told of, and the
    one before it taken."""
    checkpoints = sorted(
        folder.glob("checkpoint-*"),
        key=lambda path: int(path.name.removeprefix("checkpoint-")),
        reverse=True,
    )
    for checkpoint in checkpoints:
        if not (missing := cut_off(checkpoint)):
            return str(checkpoint)
        print(f"{checkpoint} is not gone on from: {missing}")
    return None


def cut_off(checkpoint: Path) -> str:
    """What of a checkpoint is missing or was cut off; empty if it is whole.

    Weights, optimizer and trainer_state.json (which the trainer writes last) must be
    there. Of a file the end is looked at, where its format tells how long it is.
    """
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    for kind, names in PARTS.items():
        if not any(path.name.endswith(names) for path in files):
            return f"it has no {kind}"
    broken = [path.name for path in files if not _is_whole(path)]
    return f"{', '.join(broken)}: cut off" if broken else ""


def _is_whole(path: Path) -> bool:
    match path.suffix:
        case ".json":
            try:
                json.loads(path.read_bytes())
            except ValueError:
                return False
        case ".safetensors":
            return path.stat().st_size == _safetensors_size(path)
        case (
            ".pt" | ".pth" | ".bin"
        ):  # torch writes zip files; their index is at the end
            return zipfile.is_zipfile(path)
    return True


def _safetensors_size(path: Path) -> int:
    """How many bytes a safetensors file must have, by its header; −1 without one."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(length, 100_000_000)))
        except ValueError:
            return -1
    ends = [
        t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"
    ]
    return 8 + length + max(ends, default=0)
