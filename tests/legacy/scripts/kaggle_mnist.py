# A Kaggle notebook of 2020: MNIST on 8 cores with xmp.spawn.
import os
import time

os.environ["XLA_TENSOR_ALLOCATOR_MAXSIZE"] = "100000000"
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.test.test_utils as test_utils
import torch_xla.utils.utils as xu
from sklearn.datasets import load_digits

FLAGS = {}
FLAGS["batch_size"] = 32
FLAGS["num_workers"] = 0
FLAGS["learning_rate"] = 0.01
FLAGS["momentum"] = 0.5
FLAGS["num_epochs"] = 2
FLAGS["num_cores"] = 8
FLAGS["log_steps"] = 10

SERIAL_EXEC = xmp.MpSerialExecutor()


class MNIST(nn.Module):
    def __init__(self):
        super(MNIST, self).__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=3)
        self.bn1 = nn.BatchNorm2d(10)
        self.fc1 = nn.Linear(90, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = self.bn1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, 0.1, training=self.training)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


WRAPPED_MODEL = xmp.MpModelWrapper(MNIST())


def train_mnist():
    torch.manual_seed(1)

    def get_dataset():
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        dataset = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
        return torch.utils.data.random_split(dataset, [1500, 297])

    train_dataset, test_dataset = SERIAL_EXEC.run(get_dataset)
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True)
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=FLAGS["batch_size"], sampler=train_sampler,
        num_workers=FLAGS["num_workers"], drop_last=True)
    test_loader = torch.utils.data.DataLoader(
        test_dataset, batch_size=FLAGS["batch_size"], shuffle=False,
        num_workers=FLAGS["num_workers"], drop_last=True)

    lr = FLAGS["learning_rate"] * xm.xrt_world_size()
    device = xm.xla_device()
    model = WRAPPED_MODEL.to(device)
    optimizer = optim.SGD(model.parameters(), lr=lr, momentum=FLAGS["momentum"])
    loss_fn = nn.NLLLoss()

    def train_loop_fn(loader):
        tracker = xm.RateTracker()
        model.train()
        for x, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            output = model(data)
            loss = loss_fn(output, target)
            loss.backward()
            xm.optimizer_step(optimizer)
            tracker.add(FLAGS["batch_size"])
            if x % FLAGS["log_steps"] == 0:
                print("[xla:{}]({}) Loss={:.5f} Rate={:.2f} GlobalRate={:.2f} Time={}".format(
                    xm.get_ordinal(), x, loss.item(), tracker.rate(), tracker.global_rate(),
                    time.asctime()), flush=True)

    def test_loop_fn(loader):
        total_samples = 0
        correct = 0
        model.eval()
        for data, target in loader:
            output = model(data)
            pred = output.max(1, keepdim=True)[1]
            correct += pred.eq(target.view_as(pred)).sum().item()
            total_samples += data.size()[0]
        accuracy = 100.0 * correct / total_samples
        print("[xla:{}] Accuracy={:.2f}%".format(xm.get_ordinal(), accuracy), flush=True)
        return accuracy, data, pred, target

    accuracy = 0.0
    for epoch in range(1, FLAGS["num_epochs"] + 1):
        para_loader = pl.ParallelLoader(train_loader, [device])
        train_loop_fn(para_loader.per_device_loader(device))
        xm.master_print("Finished training epoch {}".format(epoch))

        para_loader = pl.ParallelLoader(test_loader, [device])
        with torch.no_grad():
            accuracy, data, pred, target = test_loop_fn(para_loader.per_device_loader(device))
        if FLAGS["num_cores"] > 1:
            accuracy = xm.mesh_reduce("test_accuracy", accuracy, np.mean)
        test_utils.print_test_update(device, accuracy, epoch=epoch)
    xm.save(model.state_dict(), "mnist.pt")
    xm.master_print(met.metrics_report())
    return accuracy


def _mp_fn(rank, flags):
    global FLAGS
    FLAGS = flags
    torch.set_default_dtype(torch.float32)
    accuracy = train_mnist()
    if rank == 0:
        state = torch.load("mnist.pt")
        print("RESULT", accuracy, sorted({str(v.device) for v in state.values()}))


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(FLAGS,), nprocs=FLAGS["num_cores"], start_method="fork")
