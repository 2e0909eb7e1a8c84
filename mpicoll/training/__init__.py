"""Data-parallel training.

In reading order: layers, losses, models, attention, gpt, optimizers, data, sampler, recipes; buckets,
exchanges, wire, parameter_server, usage, finite, reducer, ddp, layer_drop, sync, replicas, loop.

Those before the semicolon know nothing of ranks' messages. The reducer averages gradients over the ranks while backward
goes on; the loop gives the model's backward a hook, and owns accumulation. All of it runs where the arrays are, on the
host or on a GPU: see layers for how, devices for which.
"""
