# A sequence model with gradient clipping and accumulation, in the style of tacotron2 for TPU (2019).
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch._six import inf
from torch.nn import functional as F


def clip_grad_norm_tpu(parameters, max_norm, norm_type=2):
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    parameters = list(filter(lambda p: p.grad is not None, parameters))
    device = parameters[0].device
    total_norm = torch.zeros([], device=device)
    if norm_type == inf:
        total_norm = max(p.grad.data.abs().max() for p in parameters)
    else:
        for p in parameters:
            total_norm.add_(p.grad.data.norm(norm_type) ** norm_type)
        total_norm = total_norm ** (1.0 / norm_type)
    clip_coef = torch.tensor(max_norm, device=device) / (total_norm + 1e-6)
    for p in parameters:
        p.grad.data.mul_(torch.where(clip_coef < 1, clip_coef, torch.tensor(1.0, device=device)))
    return total_norm


class Postnet(nn.Module):
    def __init__(self):
        super(Postnet, self).__init__()
        self.embedding = nn.Embedding(20, 12)
        self.conv = nn.Conv1d(12, 12, 5, padding=2)
        self.norm = nn.BatchNorm1d(12)
        self.lstm = nn.LSTM(12, 8, 1, batch_first=True, bidirectional=True)
        self.attention_rnn = nn.LSTMCell(16 + 4, 8)
        self.projection = nn.Linear(8, 4)

    def forward(self, text, mels):
        x = self.embedding(text).transpose(1, 2)
        x = F.dropout(F.relu(self.norm(self.conv(x))), 0.1, self.training)
        memory, _ = self.lstm(x.transpose(1, 2))
        hidden = memory.new_zeros(text.size(0), 8)
        cell = memory.new_zeros(text.size(0), 8)
        frame = memory.new_zeros(text.size(0), 4)
        outputs = []
        for t in range(mels.size(1)):
            context = memory.mean(1)
            hidden, cell = self.attention_rnn(torch.cat((context, frame), -1), (hidden, cell))
            outputs += [self.projection(hidden)]
            frame = mels[:, t]
        return torch.stack(outputs, 1)


torch.manual_seed(0)
device = xm.xla_device()
model = Postnet().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-6)
text = torch.randint(0, 20, (4, 4))
mels = torch.randn(4, 3, 4).cumsum(1) / 4
losses, norms = [], []
for step in range(30):
    optimizer.zero_grad()
    for half in (slice(0, 2), slice(2, 4)):  # accumulation
        loss = nn.MSELoss()(model(text[half].to(device), mels[half].to(device)),
                            mels[half].to(device)) / 2
        loss.backward()
    grad_norm = clip_grad_norm_tpu(model.parameters(), 0.5)
    if step % 2:
        nn.utils.clip_grad_norm_(model.parameters(), 0.4)
    xm.optimizer_step(optimizer, barrier=True)
    losses.append(loss)
    norms.append(grad_norm)
print("norm", norms[0].item(), norms[-1].item())
print("RESULT", losses[0].item(), losses[-1].item())
print(torch_xla._XLAC._xla_metrics_report())
