# ResNet on CIFAR in the style of 2021-22: MpDeviceLoader, step closures, a schedule, checkpoints.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.test.test_utils as test_utils
import torch_xla.utils.serialization as xser
import torch_xla.utils.utils as xu

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--num_epochs", type=int, default=2)
parser.add_argument("--num_cores", type=int, default=None)
parser.add_argument("--log_steps", type=int, default=4)
parser.add_argument("--fake_data", action="store_true")
FLAGS = parser.parse_args()


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, num_classes=10):
        super(ResNet, self).__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, 2)
        self.linear = nn.Linear(16, num_classes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer2(self.layer1(out))
        out = F.adaptive_avg_pool2d(out, 1)
        out = torch.flatten(out, 1)
        return F.log_softmax(self.linear(out), dim=1)


WRAPPED_MODEL = xmp.MpModelWrapper(ResNet())


def _train_update(device, x, loss, tracker, epoch):
    test_utils.print_training_update(
        device, x, loss.item(), tracker.rate(), tracker.global_rate(), epoch)


def train_cifar():
    torch.manual_seed(42)
    train_loader = xu.SampleGenerator(
        data=(torch.randn(FLAGS.batch_size, 3, 16, 16), torch.arange(FLAGS.batch_size) % 10),
        sample_count=8)
    test_loader = xu.SampleGenerator(
        data=(torch.randn(FLAGS.batch_size, 3, 16, 16),
              torch.zeros(FLAGS.batch_size, dtype=torch.int64)),
        sample_count=2)

    device = xm.xla_device()
    model = WRAPPED_MODEL.to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    loss_fn = nn.NLLLoss()
    writer = None
    if xm.is_master_ordinal():
        writer = test_utils.get_summary_writer(None)

    def train_loop_fn(loader, epoch):
        tracker = xm.RateTracker()
        model.train()
        for step, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            output = model(data)
            loss = loss_fn(output, target)
            loss.backward()
            xm.optimizer_step(optimizer)
            scheduler.step()
            tracker.add(FLAGS.batch_size)
            if step % FLAGS.log_steps == 0:
                xm.add_step_closure(_train_update, args=(device, step, loss, tracker, epoch))

    def test_loop_fn(loader):
        total_samples, correct = 0, 0
        model.eval()
        for data, target in loader:
            output = model(data)
            pred = output.max(1, keepdim=True)[1]
            correct += pred.eq(target.view_as(pred)).sum()
            total_samples += data.size()[0]
        accuracy = 100.0 * correct.item() / total_samples
        return xm.mesh_reduce("test_accuracy", accuracy, lambda values: sum(values) / len(values))

    train_device_loader = pl.MpDeviceLoader(train_loader, device)
    test_device_loader = pl.MpDeviceLoader(test_loader, device)
    for epoch in range(1, FLAGS.num_epochs + 1):
        xm.master_print("Epoch {} train begin {}".format(epoch, test_utils.now()))
        train_loop_fn(train_device_loader, epoch)
        with torch.no_grad():
            accuracy = test_loop_fn(test_device_loader)
        test_utils.write_to_summary(
            writer, epoch, dict_to_write={"Accuracy/test": accuracy}, write_xla_metrics=True)
    test_utils.close_summary_writer(writer)
    xser.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint", master_only=True)
    restored = xser.load("checkpoint")
    same = all(torch.equal(v, model.state_dict()[k].cpu()) for k, v in restored["model"].items())
    print("RESULT", met.metric_data("CompileTime")[0], "compiles; restored:", same)


def _mp_fn(index, flags):
    global FLAGS
    FLAGS = flags
    train_cifar()


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(FLAGS,), nprocs=FLAGS.num_cores)
