"""Checkpoints: record their files, and find the newest undamaged one to resume from.

transformers resumes from whatever it finds: without optimizer.pt it starts a new
optimizer, without the random state it draws other numbers. Here a manifest with sizes
and checksums is written last, and a checkpoint that differs from it is not used.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from factkit.run.files import write_atomically
from factkit.run.results import file_checksum
from factkit.train.launch import is_main_process

if TYPE_CHECKING:
    from transformers import Trainer

PREFIX = "checkpoint"  # transformers' name of a checkpoint's folder, before its step
MANIFEST = "manifest.json"
Files = dict[str, tuple[int, str]]  # name → size in bytes, SHA-256


def record(trainer: "Trainer") -> None:
    """Have the trainer write a manifest last into each checkpoint that it saves.

    Every process calls this: the main one waits for what the others write, as the state
    of their random numbers and DeepSpeed's shards.
    """
    from transformers import TrainerCallback

    class Record(TrainerCallback):
        def on_save(self, args, state, control, **_):
            trainer.accelerator.wait_for_everyone()
            if is_main_process():
                name = f"{PREFIX}-{state.global_step}"
                write_manifest(Path(args.output_dir, name))
            trainer.accelerator.wait_for_everyone()

    trainer.add_callback(Record())


def write_manifest(checkpoint: Path) -> None:
    """Write manifest.json: each file of the checkpoint with its size and SHA-256."""
    write_atomically(checkpoint / MANIFEST, json.dumps(_files(checkpoint), indent=1))


def damage(checkpoint: Path) -> str:
    """What is wrong with a checkpoint's files, by its manifest; "" if nothing is."""
    try:
        manifest = (checkpoint / MANIFEST).read_bytes()
        saved = TypeAdapter(Files).validate_json(manifest)
        files = _files(checkpoint)
    except (OSError, ValueError) as error:
        return " ".join(str(error).split())[:200]
    names = sorted(saved.keys() | files.keys())
    changed = [name for name in names if saved.get(name) != files.get(name)]
    return f"{', '.join(changed)}: not as it was saved" if changed else ""


def _files(checkpoint: Path) -> Files:
    """A checkpoint's files. A GB takes about a second; files are read side by side."""
    paths = [p for p in checkpoint.rglob("*") if p.is_file() and p.name != MANIFEST]
    with ThreadPoolExecutor() as pool:
        checksums = pool.map(file_checksum, paths)
        return {
            path.relative_to(checkpoint).as_posix(): (path.stat().st_size, checksum)
            for path, checksum in zip(paths, checksums, strict=True)
        }


def newest(trainer: "Trainer") -> str | None:
    """The newest checkpoint that is as it was saved, for the trainer to go on from.

    None if there is none. Every process calls this; the main one renames those after
    it to damaged-<step>, and prints which and why.
    """
    folder = Path(trainer.args.output_dir)
    if is_main_process():
        set_aside_damaged(folder)
    trainer.accelerator.wait_for_everyone()
    path = next(iter(_newest_first(folder)), None)
    return path and str(path)


def set_aside_damaged(folder: Path) -> None:
    """Rename checkpoints that are not as they were saved, from the newest on."""
    for path in _newest_first(folder):
        fault = damage(path)
        if not fault:
            return
        aside = path.with_name(path.name.replace(PREFIX, "damaged"))
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        print(f"{path} is damaged: {fault}; it is now {aside.name}, not resumed from")


def _newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder, that of the last step first."""
    steps = {
        int(step): path
        for path in folder.glob(f"{PREFIX}-*")
        if (step := path.name.removeprefix(f"{PREFIX}-")).isdecimal()
    }
    return [steps[step] for step in sorted(steps, reverse=True)]
