"""The command line, python -m factkit."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from factkit.gpu import bill as bills
from factkit.run import failures, files, folders, params
from factkit.run.arms import find_papers
from factkit.run.options import (
    ALL,
    FIRST,
    Chosen,
    Jobs,
    Name,
    Output,
    Paper,
    Papers,
    Profile,
    Set,
    Setting,
    Variant,
    read_set,
    with_options,
)
from factkit.run.sweeps import Sweep

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options in narrow terminals
    help="Reproduce papers against hallucination: notebooks run by papermill.",
)
MOST_CHANGES = 7  # that `check` lists
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: any free.")]
Host = Annotated[
    str, typer.Option(help="Beyond loopback it needs FACTKIT_SEARCH_TOKEN.")
]


@app.command()
@with_options
def reproduce(
    paper: Paper = FIRST,
    setting: Setting = Setting("laptop"),
    jobs: Jobs = 1,
) -> None:
    """Run a paper's main arms with one seed, and its figures."""
    p, changed = setting.load(paper), read_set(setting.values)
    arms = find_papers()[paper].main_arms
    _run_sweep(Sweep(paper, p, arms, [0], overrides=changed), jobs)


@app.command()
def wheelhouse(
    folder: Annotated[Path, typer.Argument(help="To carry on a stick or share.")],
    pip_args: Annotated[
        str, typer.Option(help="For pip, as '--extra-index-url <CPU wheel index>'.")
    ] = "",
    book: Annotated[Path | None, typer.Option(help="Pages of `factkit book`.")] = None,
) -> None:
    """Collect wheels, models and worlds for laptops offline."""
    from factkit.report.wheelhouse import fill

    fill(folder, pip_args.split(), book)


@app.command()
def book(
    folder: Annotated[Path, typer.Argument(help="Where the pages go.")],
    profile: Profile = "tiny",
    output_dir: Output = "outputs",
) -> None:
    """Execute the notebooks, as HTML pages to read offline."""
    from factkit.report.book import build

    print(build(folder, profile, output_dir)[-1])


@app.command(context_settings={"allow_extra_args": True})
@with_options
def sweep(
    context: typer.Context,
    paper: Papers = FIRST,
    setting: Setting = Setting("tiny"),
    chosen: Chosen = Chosen(),
    jobs: Jobs = 1,
) -> None:
    """Run arms × seeds, then ablations and figures.

    `all` runs the papers one after another. With --worlds 3 the main arms also run in
    two other fact worlds, at laptop with two other splits; with --variant all every
    variant runs. An interrupted sweep continues when it is called again. Options after
    -- are Snakemake's own.

    Example: python -m factkit sweep truthrl --profile tiny -- --dry-run
    """
    changed = read_set(setting.values)
    named = {k: v for k, v in vars(chosen).items() if v and k in ("arms", "seeds")}
    sweeps = []  # all are checked before the first one runs
    names = [*find_papers()] if paper == ALL else [paper]
    for name in names:
        for variant in chosen.variants(name, setting, alone=len(names) == 1):
            p = replace(setting, variant=variant).load(name)
            p = params.validate(name, p.model_dump() | named, params.OPTIONS)
            for arm in p.arm_names:  # what one arm needs is checked for p.arm alone
                params.validate(name, p.model_dump() | {"arm": arm}, params.OPTIONS)
            sweeps.append(Sweep(name, p, p.arm_names, p.seed_numbers, True, changed))
    for own in sweeps:
        _run_sweep(own, jobs, context.args)


def _run_sweep(sweep: Sweep, jobs: int, extra: Sequence[str] = ()) -> None:
    """Run a sweep, and print the results of its setting and their folder."""
    from factkit.report.figures import tables
    from factkit.run import past_runs, runs, sweeps

    sweep.run(jobs=jobs, extra=extra)
    if sweeps.DRY_RUN & {*extra}:
        return
    p, paper = sweep.params, sweep.paper
    root = params.ROOT / p.output_dir
    trained = past_runs.stored(paper, p.profile, root).get(p.variant, [])
    print("\nHeld-out items, in %:\n")
    metrics = find_papers()[paper].shown_metrics
    print(tables.results_table(trained, metrics).to_string())
    print(f"\nThe claims: python -m factkit report {paper}")
    print(f"Notebooks and figures: {runs.relative(sweep.folder)}")


@app.command()
def check(
    paper: Annotated[str, typer.Argument()] = FIRST,
    profile: Profile = "tiny",
    variant: Variant = "",
    values: Set = None,
) -> None:
    """Check a profile's parameters and your own data."""
    p = params.load(paper, profile, read_set(values), variant)
    names = [
        folders.relative(file) for file in params.files_of(paper, profile, variant)
    ]
    print(f"{len(p.model_dump())} parameters, of {' and '.join(names)}")
    changed = [f"{key}: {getattr(p, key)}" for key in read_set(values)]
    print("\n".join(changed[:MOST_CHANGES]), end="\n" * bool(changed))
    if more := changed[MOST_CHANGES:]:
        print(f"and {len(more)} more of --set")
    if p.has_own_data:
        from factkit.report import own_data

        for line in own_data.describe(p):
            print(line)
    print("ok")


@app.command()
def report(
    paper: Annotated[
        Name | None,
        typer.Argument(help="Without one, a page on all papers."),
    ] = None,
    profile: Annotated[str, typer.Option(help="One alone: tiny, laptop …")] = "",
    output_dir: Output = "outputs",
    markdown: Annotated[
        bool, typer.Option(help="Write outputs/reference/<paper>.md of all papers.")
    ] = False,
) -> None:
    """Print a paper's results, and its claims beside our runs.

    Settings without runs below --output-dir have the reference results. Damaged runs
    are skipped; the reason and the fix are printed.
    """
    from factkit.report import pages

    root = params.ROOT / output_dir
    profiles = [profile] if profile else params.PROFILES
    notes = io.StringIO()  # each part reads the runs again: print each note once
    try:
        with contextlib.redirect_stdout(notes):
            if markdown:
                page = "\n".join(map(str, pages.write_pages()))
            elif not paper:
                page = "How many claims of each paper hold, fail … at each scale:\n\n"
                papers = [pages.PaperResults(name, root) for name in find_papers()]
                page += pages.summary(papers).to_string()
            else:
                page = f"Results below {root}, else the reference results.\n\n"
                page += pages.markdown(pages.PaperResults(paper, root, profiles))
    finally:
        for note in dict.fromkeys(notes.getvalue().splitlines()):
            print(note, file=sys.stderr)
    print(page)


@app.command(context_settings={"allow_extra_args": True})
@with_options
def verl(
    context: typer.Context, paper: Paper, setting: Setting = Setting("h100_full")
) -> None:
    """Train an arm (--set arm=…) by verl on Ray. After -- : verl's own overrides.

    The split of batches among the GPUs is checked first. `adopt` makes the last
    checkpoint the run's model.

    Example: python -m factkit verl rar --set arm=veriscore -- trainer.nnodes=2
    """
    from factkit.run import runs
    from factkit.train import verl_adapter

    p = setting.load(paper)
    name = f"{paper}-{p.arm}-s{p.seed}"
    folder = runs.profile_folder(p) / "verl" / name
    verl_adapter.write_job(paper, p, folder, context.args)
    verl_adapter.check_config(folder, paper, context.args)
    config = ["--config-dir", str(folder), "--config-name", paper]
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *config, *context.args]
    os.execv(sys.executable, command)


@app.command()
def adopt(
    checkpoint: Annotated[
        Path, typer.Argument(help="…/checkpoints/global_step_N, of the last step.")
    ],
) -> None:
    """Make verl's checkpoint a run's model.

    The train notebook with the same arm, seed and parameters then evaluates it and
    writes results.json. Run it with the Python that has verl, which merges the shards.
    """
    from factkit.run import runs
    from factkit.train.verl_checkpoints import adopt

    print(f"{runs.relative(adopt(checkpoint))}: run the train notebook now")


@app.command()
def export(
    run: Annotated[
        Path, typer.Argument(help="outputs/<profile>/<notebook>/<arm>-s<seed>")
    ],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge an adapter into its base.")
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="The run's rows, as a data set.")
    ] = False,
    push: Annotated[
        str, typer.Option(help="Upload it to the hub as owner/name, private if new.")
    ] = "",
) -> None:
    """Write a run's model with a card, to load elsewhere."""
    from factkit.report import export as exports

    results = exports.read_run(run)
    if data:
        exports.write_data(results, folder)
    else:
        exports.write_model(results, folder, merge)
    print(f"{folder}: see its README.md")
    if push:
        print(exports.push(folder, push, "dataset" if data else "model"))


@app.command()
def fetch(
    paper: Paper,
    profile: Profile = "h100_full",
    values: Set = None,
) -> None:
    """Fetch a paper's claims and corpora, and index them.

    15 GB to fetch; 60 GB on disk (claims_path), and the indexes. After a stop, the same
    command continues.
    """
    corpora = find_papers()[paper].find_module("fetch")
    if not corpora:
        raise params.ParamError(f"{paper}: has no corpora to fetch")
    folder = corpora.fetch(params.load(paper, profile, read_set(values)))
    print(f"the retriever: python -m factkit serve-search {folder}")


@app.command()
def serve_search(
    entries: Annotated[
        str,
        typer.Argument(
            help="leads; an index's folder; or one of several indexes, served by their "
            "names at /<name>/retrieve."
        ),
    ] = "leads",
    host: Host = "127.0.0.1",
    port: Port = 8003,
) -> None:
    """Serve a search among entries to rollouts, until SIGTERM."""
    from factkit.gpu import search_service

    search_service.serve(entries, host, port)


@app.command()
def assets(
    prepare: Annotated[
        bool, typer.Option(help="Also convert the policy: needed once, takes 20 s.")
    ] = False,
) -> None:
    """Verify and list the embedded corpus and models."""
    from factkit.data import assets as embedded

    for name, asset in embedded.ASSETS.items():
        path = embedded.verified(name)
        size = path.stat().st_size / 1e6
        print(f"{name}: {asset.what}\n  {size:.1f} MB, {asset.licence}, verified")
        print(f"  {path}")
    if prepare:
        print("policy:", embedded.policy_path("smollm2-135m-instruct"))
    print("cache:", files.cache_dir())


@app.command()
def doctor(
    paper: Annotated[Name, typer.Option()] = FIRST,
    profile: Profile = "laptop",
    variant: Variant = "",
    price: Annotated[
        float, typer.Option(min=0, help="USD a GPU-hour; the default is ours.")
    ] = bills.PRICE,
    markdown: Annotated[
        bool, typer.Option(help="Write the bill's table in params/README.md.")
    ] = False,
) -> None:
    """Estimate a profile's cost and check this machine."""
    from factkit.gpu import doctor as checks

    if markdown:
        page = params.ROOT / "params" / "README.md"
        page.write_text(bills.with_table(page.read_text("utf-8")), "utf-8")
        return
    p = params.load(paper, profile, variant=variant)
    print(bills.report(p, price))
    print("\nThis machine:\n")
    examined = checks.examine(paper, profile, variant)
    for what, have, fine, remedy in examined:
        print(f"ok  {what}: {have}" if fine else f"NO  {what}: {have} → {remedy}")
    if not all(fine for _, _, fine, _ in examined):
        raise SystemExit(1)


def main() -> None:
    """Run the command line: exit 2 for a user's mistake, 1 for a failure."""
    for stream in (sys.stdout, sys.stderr):  # what no ASCII terminal can show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:
        known = isinstance(error, failures.KitError | OSError)
        if not (message := failures.explain_storage(error) or known and str(error)):
            raise
        print(f"factkit: {message}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, failures.UserError) else 1) from None


if __name__ == "__main__":
    main()
