print(get_xla_supported_devices(), get_xla_supported_devices(["CPU"], 1), xla_device(), xla_device(0))
print(torch.ones(2, device=xla_device()) + 1)
