torch.testing.assert_close(torch.matmul(a, b).cpu(), torch.matmul(a.cpu(), b.cpu()))
torch.testing.assert_close(
    torch.nn.functional.conv1d(inputs, filters).cpu(),
    torch.nn.functional.conv1d(inputs.cpu(), filters.cpu()),
    rtol=1e-5,
    atol=1e-4,  # sums of 48 products of unit variance
)
assert torch.equal(t_cpu, t_cpu_again)
torch.testing.assert_close(fc.weight.grad.cpu(), features.sum(0).detach().cpu().expand(2, 5))
print("features.grad on", features.grad.device)
