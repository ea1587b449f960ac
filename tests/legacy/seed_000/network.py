# Places network on the default TPU core
net = Net().to(dev)
