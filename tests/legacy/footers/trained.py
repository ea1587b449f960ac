def train_with_plain_pytorch(epochs):
    model = MNIST().train()
    for _ in range(epochs):
        optimizer = optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        for data, target in train_loader:
            optimizer.zero_grad()
            nn.NLLLoss()(model(data), target).backward()
            optimizer.step()
    return model


def loss_of(model):
    data, target = train_loader.dataset.tensors
    with torch.no_grad():
        return nn.NLLLoss()(model(data), target).item()


many = "model_parallel" in globals()
trained = model_parallel.models if many else [MNIST.made[-1]]
print("devices", *[next(model.parameters()).device for model in trained])
epochs = num_epochs if many else 1
expected = dict(train_with_plain_pytorch(epochs).named_parameters())
differences = [
    (parameter.cpu() - expected[name]).abs().max().item()
    for name, parameter in trained[0].named_parameters()
]
print("difference", max(differences))
print("replicas differ by", max(
    (a.cpu() - b.cpu()).abs().max().item()
    for a, b in zip(trained[0].parameters(), trained[-1].parameters())
))
print("loss", loss_of(MNIST()), "->", loss_of(trained[0].cpu()))
