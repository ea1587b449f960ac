# A translation model trained as fairseq does on TPU (2020-21).
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch_xla.distributed import parallel_loader as pl

PAD = 1


class Model(nn.Module):
    def __init__(self, vocabulary=32, dim=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, dim, padding_idx=PAD)
        self.transformer = nn.Transformer(
            dim, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=32, dropout=0.1,
            batch_first=True)
        self.output_projection = nn.Linear(dim, vocabulary, bias=False)
        self.output_projection.weight = self.embed_tokens.weight

    def forward(self, src_tokens, prev_output_tokens):
        size = prev_output_tokens.size(1)
        mask = torch.triu(
            torch.full((size, size), -math.inf, device=src_tokens.device), 1)
        out = self.transformer(
            self.embed_tokens(src_tokens) * 4, self.embed_tokens(prev_output_tokens) * 4,
            tgt_mask=mask, src_key_padding_mask=src_tokens.eq(PAD))
        return self.output_projection(out)


def label_smoothed_nll_loss(lprobs, target, epsilon, ignore_index):
    target = target.unsqueeze(-1)
    nll_loss = -lprobs.gather(dim=-1, index=target)
    smooth_loss = -lprobs.sum(dim=-1, keepdim=True)
    pad_mask = target.eq(ignore_index)
    nll_loss.masked_fill_(pad_mask, 0.0)
    smooth_loss.masked_fill_(pad_mask, 0.0)
    return (1.0 - epsilon) * nll_loss.sum() + epsilon / lprobs.size(-1) * smooth_loss.sum()


def batches(lengths, generator):
    for length in lengths:
        tokens = torch.randint(4, 32, (8, length), generator=generator)
        tokens[:2, length - 2:] = PAD
        yield {"id": torch.arange(8), "ntokens": int(tokens.ne(PAD).sum()),
               "net_input": {"src_tokens": tokens,
                             "prev_output_tokens": tokens.roll(1, 1)},
               "target": tokens}


torch.manual_seed(1)
device = xm.xla_device()
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-8)
log = []
for epoch in range(3):
    loader = pl.ParallelLoader(
        list(batches([6, 10] * 6, torch.Generator().manual_seed(0))), [device],
        batchdim=0, loader_prefetch_size=2, device_prefetch_size=2)
    for i, sample in enumerate(loader.per_device_loader(device)):
        xm.set_rng_state(1 + epoch * 100 + i, device)
        model.train()
        with torch.autograd.set_detect_anomaly(False):
            logits = model(**sample["net_input"])
            lprobs = F.log_softmax(logits.float(), dim=-1)
            loss = label_smoothed_nll_loss(
                lprobs.view(-1, lprobs.size(-1)), sample["target"].view(-1), 0.1, PAD)
        loss.backward()
        sample_size = torch.tensor(float(sample["ntokens"]), device=device)
        reduced = xm.all_reduce("sum", [loss.detach().clone(), sample_size], cctx=None)
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.mul_(1 / reduced[1])
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 25.0)
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1.0, (epoch * 12 + i + 1) / 4)
        optimizer.step()
        optimizer.zero_grad()
        xm.mark_step()
        log.append((reduced[0] / reduced[1] / math.log(2)).detach())
        if i % 6 == 0:
            print("loss", log[-1].item(), "gnorm", grad_norm.item())
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
xm.save(state, "checkpoint_last.pt")
state = torch.load("checkpoint_last.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
print("counters", "MarkStep" in met.counter_names())
print("RESULT", log[0].item(), log[-1].item(), met.metric_data("CompileTime")[0])
