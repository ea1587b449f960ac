    return total_norm


parameters = [torch.randn(3, 2).requires_grad_(), torch.randn(4).requires_grad_()]
for max_norm, norm_type in ((1.0, 2), (100.0, 2), (0.5, 3)):
    ours = [p.detach().to(xm.xla_device()).requires_grad_() for p in parameters]
    for p, q in zip(parameters, ours):
        p.grad = torch.ones_like(p)
        q.grad = torch.ones_like(q)
    expected = torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
    norm = clip_grad_norm_(ours, max_norm, norm_type)
    torch.testing.assert_close(norm.cpu(), expected)
    for p, q in zip(parameters, ours):
        torch.testing.assert_close(q.grad.cpu(), p.grad)
    print("norm", norm.item())
