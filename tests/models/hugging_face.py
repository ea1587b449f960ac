"""Hugging Face models from tiny configurations, with the loss as their result."""

from __future__ import annotations

import transformers
from torch import Tensor, nn


class HuggingFace(nn.Module):
    def __init__(self, model: transformers.PreTrainedModel, *arguments: str) -> None:
        super().__init__()
        self.model = model
        self.arguments = arguments

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.arguments, inputs, strict=True))).loss


def bert(dropout: float) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = transformers.BertForMaskedLM(config)
    return HuggingFace(model, "input_ids", "attention_mask", "labels")


def gpt2_model(dropout: float) -> transformers.GPT2LMHeadModel:
    config = transformers.GPT2Config(
        vocab_size=50,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=16,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # what it takes anyway, after a warning that breaks the graph
    return model


def gpt2(dropout: float) -> nn.Module:
    return HuggingFace(gpt2_model(dropout), "input_ids", "labels")


def llama_model(dropout: float) -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        attention_dropout=dropout,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def llama(dropout: float) -> nn.Module:
    return HuggingFace(llama_model(dropout), "input_ids", "labels")


def t5(dropout: float) -> nn.Module:
    config = transformers.T5Config(
        vocab_size=50,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        dropout_rate=dropout,
        decoder_start_token_id=0,
        use_cache=False,
    )
    model = transformers.T5ForConditionalGeneration(config)
    return HuggingFace(model, "input_ids", "attention_mask", "labels")


def vit(dropout: float) -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=16,
        patch_size=8,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=10,
        problem_type="single_label_classification",  # else the model sets it while it runs
    )
    return HuggingFace(transformers.ViTForImageClassification(config), "pixel_values", "labels")
