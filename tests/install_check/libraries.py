"""transformers, Accelerate and diffusers find this project's torch_xla, and train on it."""

import tempfile

import accelerate
import diffusers
import torch
import torch_xla
import transformers

assert "xla_dynamo" in torch_xla.__file__, torch_xla.__file__
for library in (accelerate.utils, transformers.utils, diffusers.utils):
    assert library.is_torch_xla_available(), library

accelerator = accelerate.Accelerator()
assert accelerator.device.type == "xla", accelerator.device
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters())
batches = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
for batch in batches:
    loss = model(batch).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
assert loss.device.type == "xla"

config = transformers.BertConfig(
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    vocab_size=50,
)
data = [{"input_ids": torch.randint(0, 50, (8,)), "labels": i % 2} for i in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(folder, max_steps=3, report_to=[], save_steps=100)
    trainer = transformers.Trainer(
        transformers.BertForSequenceClassification(config), arguments, train_dataset=data
    )
    assert trainer.args.device.type == "xla", trainer.args.device
    print(trainer.train())
