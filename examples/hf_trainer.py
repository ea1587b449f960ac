"""transformers' Trainer with this backend: python examples/hf_trainer.py

Two settings of TrainingArguments say it. "torchxla_trace_once" is the name of backend "xla" that
transformers and Accelerate accept. A small BERT learns which of two letters a text has more of.
"""

# transformers is installed by its users.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import xla_dynamo


class Texts(Dataset):
    """Texts of 32 letters, and whether each has more letters 0 than letters 1."""

    def __init__(self, count: int) -> None:
        self.texts = torch.randint(6, (count, 32))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = self.texts[index]
        return {"input_ids": text, "labels": ((text == 0).sum() > (text == 1).sum()).long()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=6,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
    )
    arguments = TrainingArguments(
        output_dir="hf_trainer",
        max_steps=options.steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        learning_rate=1e-3,
        torch_compile=True,
        torch_compile_backend="torchxla_trace_once",
        dataloader_drop_last=True,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Texts(32 * options.steps),
        eval_dataset=Texts(320),
        compute_metrics=lambda of: {"right": float((of[0].argmax(1) == of[1]).mean())},
    )
    trainer.train()
    told = trainer.evaluate()
    fallbacks = [name for name in xla_dynamo.counters() if name.startswith("fallback.")]
    print(f"programs    {len(xla_dynamo.compiles())}")
    print(f"not on XLA  {', '.join(fallbacks) or 'nothing'}")
    print(f"right       {told['eval_right']:.1%} of 320 texts")


if __name__ == "__main__":
    main()
