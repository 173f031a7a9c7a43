"""Rehearse the h100 profiles on a CPU: their notebooks, by papermill, in small sizes.

    make rehearse PAPER=truthrl PROFILE=h100_lora
    python tests/rehearsal [--paper P] [--profile P] [--variant V] [--arms "a b"]

All is as on the cluster but the sizes (sizes.yaml), the addresses and the models, which
are small (hub.py, policy.py); servers.py starts the servers. What is done is not done
again: a rehearsal that was killed goes on. Its folder has the runs, a log a notebook,
and summary.json.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cells
import hub
import policy
import servers
import yaml
from sizes import PAPERS, sizes

from factkit.data import assets
from factkit.papers.veri import fetch
from factkit.run import arms, params, runs
from factkit.run.params import ROOT

PROFILES = ("h100_lora", "h100_full")
FOLDER = ROOT / ".rehearsal"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Done:
    """What became of a notebook; error: the last line of it, "" if it ran through."""

    name: str
    minutes: float = 0.0
    error: str = ""


@dataclass
class Rehearsal:
    """One paper, profile and variant. values: what differs from the shipped YAML."""

    paper: str
    profile: str
    variant: str
    folder: Path

    def __post_init__(self) -> None:
        own = sizes(self.paper, self.profile, self.variant)
        self.values = own | servers.addresses(self.paper, self.folder)
        self.p = params.load(
            self.paper,
            self.profile,
            self.values | {"output_dir": str(self.folder / "outputs")},
            self.variant,
        )
        self.name = "-".join(filter(None, (self.paper, self.profile, self.variant)))

    def stage(self, name: str) -> str:
        """The stem of the paper's notebook of a stage."""
        (path,) = (ROOT / "notebooks").glob(f"[1-5]?_{self.paper}_{name}.ipynb")
        return path.stem

    def run(self, stage: str, arm: str = "", **more: str) -> Done:
        """Run a notebook, unless its results are there."""
        stem, p = self.stage(stage), self.p
        if arm:
            p = params.load(
                self.paper,
                self.profile,
                self.values | {"arm": arm, "output_dir": p.output_dir},
                self.variant,
            )
        result, done = (
            runs.run_folder(stem, p),
            Done(" ".join(filter(None, (stem, arm)))),
        )
        if runs.read_results(result):
            return done
        start = time.monotonic()
        result.mkdir(parents=True, exist_ok=True)
        partial = result / "notebook.partial.ipynb"
        log = self.folder / "logs" / f"{self.name} {done.name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            ended = subprocess.run(
                self.command(stem, partial, arm, more),
                stdout=file,
                stderr=subprocess.STDOUT,
                env=servers.environment(self.folder),
                cwd=ROOT,
            )
        done.minutes = round((time.monotonic() - start) / 60, 1)
        if ended.returncode == 0:
            partial.rename(result / "notebook.ipynb")
        else:
            lines = COLOURS.sub("", log.read_text("utf-8")).split("\n")
            said = [s.strip() for s in lines if s.strip()]
            named = [s for s in said if re.match(r"(\[rank\d+\]: )?[\w.]*Error\b", s)]
            done.error = next(reversed(named or said), "?")
        return done

    def command(
        self, stem: str, out: Path, arm: str, more: dict[str, str]
    ) -> list[str]:
        """papermill's command line, as factkit/Snakefile has it."""
        file = self.folder / f"{self.name}.yaml"
        file.write_text(yaml.safe_dump(self.values), "utf-8")
        command = [*(sys.executable, "-m", "papermill"), f"notebooks/{stem}.ipynb"]
        command += [str(out)]
        command += params.papermill_files(
            self.paper, self.profile, self.variant
        ).split()
        command += ["-f", str(file), "-r", "output_dir", self.p.output_dir]
        command += ["-p", "arm", arm, "-p", "seed", "0"] if arm else []
        for key, value in more.items():
            command += ["-r", key, value]
        return [*command, "--log-level", "ERROR", "--no-progress-bar"]

    def stages(self, chosen: list[str]) -> Iterator[Done]:
        """Data, rewards, an arm after the other, ablations, figures."""
        with servers.running(servers.commands(self.p, self.folder), self.folder):
            yield (data := self.run("data"))
            yield self.run("rewards")
            if data.error:
                return
            trained = []
            for arm in chosen:
                yield (done := self.run("train", arm))
                trained += [] if done.error else [arm]
            if trained:
                yield self.run("ablations", arms=" ".join(trained), seeds="0")
                yield self.run("figures")
                yield from self.tables()

    def tables(self) -> Iterator[Done]:
        """An error for the empty cells of the tables that have no reason."""
        for stage in ("ablations", "figures"):
            stem = self.stage(stage)
            notebook = runs.run_folder(stem, self.p) / "notebook.ipynb"
            if not notebook.exists():
                continue
            known, others = cells.unexplained(notebook, stem, self.name)
            for reason in dict.fromkeys(known.values()):
                n = list(known.values()).count(reason)
                print(f"  {stem}: {n} cells empty, {reason}")
            where = "; ".join(f"[{n}] {row}, {column}" for n, row, column in others)
            yield Done(f"{stem} tables", 0.0, where and f"empty, no reason: {where}")


def prepare(folder: Path) -> None:
    """The miniature hub and its models, made once."""
    if not (folder / "hub").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")
        hub.write(folder / "hub")
    model = policy.make(folder / "policy")
    hub.write_models(folder / "hub", model, Path(assets.embedder_path()))
    fetch.build_indexes(folder / "hub" / hub.VERI)


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Paper, profile and variant of what is asked for, by default all that there is."""
    for profile in [options.profile] if options.profile else PROFILES:
        for paper in [options.paper] if options.paper else PAPERS:
            files = sorted((ROOT / "params" / profile).glob(f"{paper}*.yaml"))
            variants = [file.stem.partition("-")[2] for file in files]
            own = variants if options.variant is None else [options.variant]
            yield from ((paper, profile, variant) for variant in own)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/rehearsal", description=__doc__)
    parser.add_argument("--paper", choices=PAPERS)
    parser.add_argument("--profile", choices=PROFILES)
    parser.add_argument("--variant", help='by default all; "" the main one alone')
    parser.add_argument("--arms", default="", help="by default the YAML's")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    folder = options.folder.absolute()
    prepare(folder)
    table: list[dict[str, Any]] = []
    with servers.running(servers.engine(folder), folder):
        for names in chosen(options):
            rehearsal = Rehearsal(*names, folder)
            own = [
                a
                for a in arms.find_papers()[names[0]].arms
                if a in rehearsal.p.arm_names
            ]
            for done in rehearsal.stages(options.arms.split() or own):
                state = f"{done.minutes} min, {done.error or 'ok'}"
                print(f"{rehearsal.name} {done.name}: {state}", flush=True)
                table.append({"run": rehearsal.name, **asdict(done)})
                (folder / "summary.json").write_text(
                    json.dumps(table, indent=1), "utf-8"
                )
    failed = [row for row in table if row["error"]]
    print(f"\n{len(table) - len(failed)} of {len(table)} ran through")
    for row in failed:
        print(f"  {row['run']} {row['name']}: {row['error']}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
