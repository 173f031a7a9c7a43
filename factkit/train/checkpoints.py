"""Checkpoints: record their files, and find the newest undamaged one to resume from.

transformers resumes from whatever it finds: without optimizer.pt it starts a new
optimizer, without the random state it draws other numbers. A manifest with sizes and
checksums is written last; a checkpoint that differs from its manifest is not used.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from factkit.run.files import file_checksum, write_atomically
from factkit.train.launch import is_main_process

if TYPE_CHECKING:
    from transformers import Trainer

MANIFEST = "manifest.json"
Files = dict[str, tuple[int, str]]  # name → size in bytes, SHA-256


def record(trainer: "Trainer") -> None:
    """Have the trainer write a manifest last into each checkpoint that it saves.

    Every process calls this: the main one waits for the files of the others.
    """
    from transformers import TrainerCallback

    class Record(TrainerCallback):
        def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            trainer.accelerator.wait_for_everyone()
            if is_main_process():
                checkpoint = Path(args.output_dir, f"checkpoint-{state.global_step}")
                manifest = json.dumps(_files(checkpoint), indent=1)
                write_atomically(checkpoint / MANIFEST, manifest)
            trainer.accelerator.wait_for_everyone()

    trainer.add_callback(Record())


def newest(trainer: "Trainer") -> str | None:
    """The newest undamaged checkpoint to resume from, or None.

    Every process calls this; the main one renames newer, damaged checkpoints to
    damaged-<step> and prints the reason.
    """
    from transformers.trainer_utils import get_last_checkpoint

    folder = Path(trainer.args.output_dir)
    if is_main_process():
        folder.mkdir(parents=True, exist_ok=True)
        while last := get_last_checkpoint(folder):
            path = Path(last)
            if not (fault := _find_damage(path)):
                break
            aside = path.with_name(path.name.replace("checkpoint", "damaged"))
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            print(
                f"{path} is damaged: {fault}; it is now {aside.name}, not resumed from"
            )
    trainer.accelerator.wait_for_everyone()
    return get_last_checkpoint(folder)


def _find_damage(checkpoint: Path) -> str:
    """The differences between a checkpoint and its manifest, "" without any."""
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
    paths = [p for p in checkpoint.rglob("*") if p.is_file() and p.name != MANIFEST]
    with ThreadPoolExecutor() as pool:  # a GB takes about a second
        checksums = pool.map(file_checksum, paths)
        return {
            path.relative_to(checkpoint).as_posix(): (path.stat().st_size, checksum)
            for path, checksum in zip(paths, checksums, strict=True)
        }
