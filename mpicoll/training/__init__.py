"""Data-parallel training.

In reading order: parameter, layers, losses, models, attention, gpt, precision, optimizers, loss_scale, layer_drop,
data, sampler, recipes; buckets, exchanges, reducer, ddp, loop; what a reducer is told or made with: checks, usage,
finite, ready_order, fixed_order, wire, parameter_server, driving, replicas; a run: options, sync, reproducible,
devices, setup, checkpoint, resume, saving, elastic, sample; what is told of it: report, verdict, timeline, trace,
timeline_picture.

Those before the first semicolon know nothing of ranks' messages. The reducer averages gradients over the ranks while
backward goes on; the loop gives the model's backward a hook, and owns accumulation. All of it runs where the arrays
are, on the host or on a GPU: see layers for how, devices for which.
"""
