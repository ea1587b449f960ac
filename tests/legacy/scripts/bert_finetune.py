# Fine-tuning a classifier of HF transformers on TPU, Kaggle style of 2020-21.
import numpy as np
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

TRAIN_BATCH_SIZE = 8
EPOCHS = 3
MAX_LEN = 16


class Texts(torch.utils.data.Dataset):
    def __init__(self, n):
        generator = np.random.RandomState(0)
        self.ids = generator.randint(5, 100, size=(n, MAX_LEN))
        self.targets = generator.randint(0, 2, size=n)
        self.ids[:, 1] = 5 + self.targets  # what is to be learnt
        self.lengths = generator.randint(4, MAX_LEN + 1, size=n)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, item):
        mask = (np.arange(MAX_LEN) < self.lengths[item]).astype(np.int64)
        return {
            "ids": torch.tensor(self.ids[item] * mask, dtype=torch.long),
            "mask": torch.tensor(mask, dtype=torch.long),
            "token_type_ids": torch.zeros(MAX_LEN, dtype=torch.long),
            "targets": torch.tensor(self.targets[item], dtype=torch.long),
        }


def reduce_fn(vals):
    return sum(vals) / len(vals)


def train_fn(data_loader, model, optimizer, device, scheduler=None):
    model.train()
    losses = []
    for bi, d in enumerate(data_loader):
        ids = d["ids"].to(device, dtype=torch.long)
        mask = d["mask"].to(device, dtype=torch.long)
        token_type_ids = d["token_type_ids"].to(device, dtype=torch.long)
        targets = d["targets"].to(device, dtype=torch.long)

        optimizer.zero_grad()
        outputs = model(input_ids=ids, attention_mask=mask, token_type_ids=token_type_ids)[0]
        loss = nn.CrossEntropyLoss()(outputs, targets)
        if bi % 5 == 0:
            loss_reduced = xm.mesh_reduce("loss_reduce", loss, reduce_fn)
            xm.master_print(f"bi={bi}, loss={loss_reduced}")
            losses.append(float(loss_reduced))
        loss.backward()
        xm.optimizer_step(optimizer)
        if scheduler is not None:
            scheduler.step()
    return losses


def eval_fn(data_loader, model, device):
    model.eval()
    fin_targets, fin_outputs = [], []
    with torch.no_grad():
        for d in data_loader:
            outputs = model(input_ids=d["ids"], attention_mask=d["mask"])[0]
            fin_targets.extend(d["targets"].cpu().detach().numpy().tolist())
            fin_outputs.extend(outputs.argmax(-1).cpu().detach().numpy().tolist())
    return fin_outputs, fin_targets


def _run():
    torch.manual_seed(0)
    dataset = Texts(96)
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True)
    train_data_loader = torch.utils.data.DataLoader(
        dataset, batch_size=TRAIN_BATCH_SIZE, sampler=train_sampler, drop_last=True)
    device = xm.xla_device()
    model = MX.to(device)
    param_optimizer = list(model.named_parameters())
    no_decay = ["bias", "LayerNorm.bias", "LayerNorm.weight"]
    optimizer_parameters = [
        {"params": [p for n, p in param_optimizer if not any(nd in n for nd in no_decay)],
         "weight_decay": 0.001},
        {"params": [p for n, p in param_optimizer if any(nd in n for nd in no_decay)],
         "weight_decay": 0.0},
    ]
    num_train_steps = int(96 / TRAIN_BATCH_SIZE / xm.xrt_world_size() * EPOCHS)
    optimizer = torch.optim.AdamW(optimizer_parameters, lr=3e-3 * xm.xrt_world_size())
    scheduler = get_linear_schedule_with_warmup(
        optimizer, num_warmup_steps=2, num_training_steps=num_train_steps)
    losses = []
    for epoch in range(EPOCHS):
        para_loader = pl.ParallelLoader(train_data_loader, [device])
        losses += train_fn(
            para_loader.per_device_loader(device), model, optimizer, device, scheduler)
    para_loader = pl.ParallelLoader(train_data_loader, [device])
    o, t = eval_fn(para_loader.per_device_loader(device), model, device)
    xm.save(model.state_dict(), "model.bin")
    print("RESULT", losses[0], losses[-1], np.mean(np.array(o) == np.array(t)))


def _mp_fn(rank, flags):
    torch.set_default_dtype(torch.float32)
    _run()


torch.manual_seed(0)
MX = xmp.MpModelWrapper(BertForSequenceClassification(BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64, max_position_embeddings=32)))
FLAGS = {}
xmp.spawn(_mp_fn, args=(FLAGS,), nprocs=8, start_method="fork")
