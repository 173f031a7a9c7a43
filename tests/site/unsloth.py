"""In the place of Unsloth, which does not import without a GPU: the same by PEFT.

Its two functions take what the kit gives them (tests/with_vllm/test_arguments.py holds
that against Unsloth's own). TRL starts the engine that `fast_inference` asks for, and
sends it the merged weights where Unsloth hands over the adapter; Unsloth's marks of
that are here, too.
"""

from typing import Any

from trl.generation.vllm_generation import VLLMGeneration

VLLMGeneration._unsloth_load_lora = True
VLLMGeneration.generate._unsloth_vllm_generation_lora_wrapped = True


class FastLanguageModel:
    @staticmethod
    def from_pretrained(model_name: str, dtype: Any, **options: Any) -> tuple:
        from factkit.policy import models

        dtype = str(dtype).removeprefix("torch.")
        return models.load_model(model_name, dtype), models.load_tokenizer(model_name)

    @staticmethod
    def get_peft_model(
        model: Any,
        r: int,
        lora_alpha: int,
        target_modules: list[str],
        use_gradient_checkpointing: str,
        random_state: int,
    ) -> Any:
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            r=r,
            lora_alpha=lora_alpha,
            target_modules=target_modules,
            task_type="CAUSAL_LM",
        )
        return get_peft_model(model, config)
