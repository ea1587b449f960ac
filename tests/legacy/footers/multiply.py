torch.testing.assert_close(t0.mm(t1).cpu(), t0.cpu().mm(t1.cpu()))
