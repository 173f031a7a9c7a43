"""A checkpoint of verl's own becomes a run's model."""

import shutil

import pytest
import torch
import verl_papers
from omegaconf import OmegaConf
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from factkit import UserError
from factkit.train import verl_adapter as adapter
from factkit.train.verl_checkpoints import adopt

RANKS = 2


def save(rank, policy, folder, store):
    """A rank's part of what verl's workers save."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    model = FSDP(
        LlamaForCausalLM.from_pretrained(policy),
        device_mesh=mesh,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    contents = {"save_contents": ["model"], "load_contents": ["model"]}
    manager = FSDPCheckpointManager(
        model,
        processing_class=AutoTokenizer.from_pretrained(policy),
        checkpoint_config=OmegaConf.create(contents),
    )
    manager.save_checkpoint(str(folder), global_step=1)
    torch.distributed.destroy_process_group()


def test_shards_are_merged_into_the_run_s_model(tmp_path):
    paper = verl_papers.made("truthrl", tmp_path)
    p = paper.p
    config = AutoConfig.from_pretrained(p.policy)
    policy = LlamaForCausalLM(config).bfloat16()
    policy.save_pretrained(p.policy)
    home = adapter.write_job("truthrl", p, tmp_path / "verl" / "truthrl-x-s0")
    step = home / "checkpoints" / f"global_step_{p.rl_steps}"
    store = tmp_path / "store"
    given = p.policy, step / "actor", store
    multiprocessing.spawn(save, given, nprocs=RANKS)
    (lost,) = (step / "actor").glob("*_rank_1.pt")
    shutil.move(lost, tmp_path)
    with pytest.raises(UserError, match="rank_1.pt"):
        adopt(step)
    shutil.move(tmp_path / lost.name, lost)
    merged = LlamaForCausalLM.from_pretrained(adopt(step), dtype=torch.bfloat16)
    for name, weight in policy.state_dict().items():
        assert torch.equal(weight, merged.state_dict()[name]), name
