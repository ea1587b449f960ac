import torch_xla.core.xla_model as xm

torch.manual_seed(0)
dev = xm.xla_device()
plain = Net()
image = torch.randn(1, 1, 32, 32)
net = Net()
net.load_state_dict(plain.state_dict())
net = net.to(dev)
out = net(image.to(dev))
print(out)
net.zero_grad()
out.sum().backward()
plain(image).sum().backward()
torch.testing.assert_close(out.cpu(), plain(image))
for name, parameter in plain.named_parameters():
    torch.testing.assert_close(net.get_parameter(name).grad.cpu(), parameter.grad, msg=name)
