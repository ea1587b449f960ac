print(t0.mm(t1))
