"""Learning to Reason for verl: GRPO from the SFT model, on the data of notebook 30."""

from factkit.answers.training_rows import RowFormat
from factkit.data.examples import DataError, read_examples
from factkit.papers.reason.arms import Reason
from factkit.papers.reason.train import NOTEBOOK, reward_function
from factkit.run import runs
from factkit.train.verl_adapter import Job


def make_job(p: Reason) -> Job:
    """What verl needs to train `p.arm`. Raises DataError if the SFT model of the same
    seed is not trained."""
    start = runs.run_folder(NOTEBOOK, p.model_copy(update={"arm": "sft"})) / "model"
    if not start.exists():
        raise DataError(f"{start}: not there; train arm=sft with notebook 32 first")
    train = read_examples(runs.run_folder(p.data_notebook, p) / "train.jsonl")
    rows = RowFormat(p.prompt_template, p.chat).request_rows(train)
    return Job(p, str(start), rows, reward_function)
