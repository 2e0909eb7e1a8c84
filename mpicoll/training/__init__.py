"""Data-parallel training. In reading order: layers, losses, models, optimizers, data, sampler; reducer, replicas, loop.

The first six know nothing of ranks' messages. The reducer averages gradients over the ranks while backward goes on; the
loop gives the model's backward a hook, and owns accumulation. All of it runs where the arrays are, on the host or on a
GPU: see layers for how, devices for which.
"""
