torch.testing.assert_close((t0 + t1).cpu(), t0.cpu() + t1.cpu())
