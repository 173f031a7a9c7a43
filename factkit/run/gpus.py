"""Reserve GPUs of this machine for a run.

`python -m factkit.run.gpus N COMMAND …` waits for N GPUs that no other such command of
this user holds, then runs the command with only these visible. They are released when
its process ends, however it ends.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POLL_S = 0.1


def visible() -> dict[str, str]:
    """The GPUs that CUDA would see: name in CUDA_VISIBLE_DEVICES → UUID, or the name if
    nvidia-smi does not list it. Does not start CUDA."""
    try:
        listed = subprocess.check_output(["nvidia-smi", "-L"], text=True)
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    uuids = dict(re.findall(r"^GPU (\d+): .*UUID: ([\w-]+)", listed, re.M))
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(uuids)).split(",")
    return {name: uuids.get(name, name) for name in names if name not in ("", "-1")}


def main(number: int, command: list[str]) -> None:
    """Replace this process by the command, on GPUs of its own."""
    import fcntl  # not on Windows

    gpus = visible()
    held: dict[str, int] = {}  # name → its open lock
    if len(gpus) < number:
        sys.exit(f"{number} GPU(s) are needed and {len(gpus)} visible")
    folder = Path(tempfile.gettempdir(), f"factkit-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / "queue", "ab") as queue:  # else two could wait for each other
        fcntl.flock(queue, fcntl.LOCK_EX)
        free = (name for name in itertools.cycle(gpus) if name not in held)
        while len(held) < number:
            name = next(free)
            lock = os.open(folder / gpus[name], os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.set_inheritable(lock, True)  # the command keeps holding it
                held[name] = lock
            except BlockingIOError:
                os.close(lock)
                time.sleep(POLL_S)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(name for name in gpus if name in held)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
