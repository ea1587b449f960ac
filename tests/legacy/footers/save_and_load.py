for kept, loaded in zip((t0, t1), tensors):
    assert kept.device == device and loaded.device.type == "cpu"
    assert torch.equal(kept.cpu(), loaded)
