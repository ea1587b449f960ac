# A DC-GAN with two optimizers (2020-22).
import torch
import torch.nn as nn
import torch.optim as optim
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp

nz, ngf, ndf, batch_size = 8, 8, 8, 16


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, x):
        return self.main(x)


def train(index):
    torch.manual_seed(999)
    device = xm.xla_device()
    netG = Generator().to(device)
    netG.apply(weights_init)
    netD = Discriminator().to(device)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    fixed_noise = torch.randn(4, nz, 1, 1, device=device)
    real_label, fake_label = 1.0, 0.0
    optimizerD = optim.Adam(netD.parameters(), lr=0.002, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.002, betas=(0.5, 0.999))
    images = torch.randn(batch_size * 10, 1, 16, 16).clamp(-1, 1)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, torch.zeros(len(images))), batch_size=batch_size)
    G_losses, D_losses = [], []
    for epoch in range(2):
        para_loader = pl.ParallelLoader(loader, [device]).per_device_loader(device)
        for i, data in enumerate(para_loader):
            netD.zero_grad()
            real = data[0]
            b_size = real.size(0)
            label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
            output = netD(real).view(-1)
            errD_real = criterion(output, label)
            errD_real.backward()
            D_x = output.mean()
            noise = torch.randn(b_size, nz, 1, 1, device=device)
            fake = netG(noise)
            label.fill_(fake_label)
            output = netD(fake.detach()).view(-1)
            errD_fake = criterion(output, label)
            errD_fake.backward()
            errD = errD_real + errD_fake
            xm.optimizer_step(optimizerD)

            netG.zero_grad()
            label.fill_(real_label)
            output = netD(fake).view(-1)
            errG = criterion(output, label)
            errG.backward()
            xm.optimizer_step(optimizerG)
            G_losses.append(errG.detach())
            D_losses.append(errD.detach())
            if i % 5 == 0:
                xm.add_step_closure(
                    lambda d, g, x: print("Loss_D: %.4f Loss_G: %.4f D(x): %.4f" % (
                        d.item(), g.item(), x.item())),
                    args=(errD, errG, D_x))
    with torch.no_grad():
        pictures = netG(fixed_noise).detach().cpu()

    def show(data):
        print("pictures", tuple(data.shape), data.device)

    xm.do_on_ordinals(show, data=(pictures,), ordinals=(0,))
    print("RESULT", D_losses[0].item(), D_losses[-1].item(), met.metric_data("CompileTime")[0])


if __name__ == "__main__":
    xmp.spawn(train, args=(), nprocs=1, start_method="fork")
