print(net(torch.ones(1, 4, device=dev)))
