torch.testing.assert_close(l_out.cpu(), linear.cpu()(l_in.cpu()))
