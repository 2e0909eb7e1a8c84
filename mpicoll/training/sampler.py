"""Which samples a rank sees at which step, as a function of the seed alone."""

import numpy as np


class Sampler:
    """Cuts an endless stream of samples into global batches, and every global batch into one share per rank.

    The stream is one permutation of all samples per epoch, one epoch after the other, so every sample is seen exactly
    once per epoch, also where a batch reaches over the end of one. The permutation is a function of (seed, epoch):
    there is no epoch to set and forget, and the global batch of a step is the same for every number of ranks.

    Where samples overlap, an epoch takes one of every `stride`, from a first one that is drawn for each epoch.

    Args:
        count: samples in the data, at least `stride`.
        global_batch: samples per step over all ranks.
        micro_batch: samples that a rank computes at a time; by default its whole share.
        stride: how far apart the samples of an epoch are.

    Attributes:
        count: samples of an epoch.
        share: samples per step of one rank.
        divisor: what sums over a rank's samples are divided by, so that the average over all ranks is the mean.
        micro_batch, accumulation: share = accumulation * micro_batch.

    Raises:
        ValueError: the global batch is larger than the data or does not divide by the number of ranks, or the
            micro-batch does not divide the share.
    """

    def __init__(self, count, global_batch, rank=0, size=1, seed=0, micro_batch=None, stride=1):
        count //= stride  # the same for every first one
        if not 1 <= global_batch <= count:
            raise ValueError(
                f"the global batch is {global_batch}, the data has {count} training samples: "
                f"choose a batch from 1 to {count}, or more data"
            )
        if global_batch % size:
            below, above = global_batch // size * size, (global_batch // size + 1) * size
            near = f"{below} or {above}" if below else f"{above}"
            raise ValueError(f"the global batch of {global_batch} does not divide by {size} ranks; {near} would")
        self.count, self.global_batch, self.rank, self.seed, self.stride = count, global_batch, rank, seed, stride
        self.share = self.divisor = global_batch // size
        self.micro_batch = self.share if micro_batch is None else micro_batch
        if self.micro_batch < 1 or self.share % self.micro_batch:
            raise ValueError(f"the micro-batch of {micro_batch} does not divide the {self.share} samples of a rank")
        self.accumulation = self.share // self.micro_batch
        self._epoch, self._permutation = None, None

    def permutation(self, epoch):
        """The samples in the order of this epoch; (count,) integers."""
        if epoch != self._epoch:
            rng = np.random.default_rng([self.seed, epoch])
            self._permutation = rng.permutation(self.count) * self.stride + rng.integers(self.stride)
            self._epoch = epoch
        return self._permutation

    def batch(self, step):
        """This rank's part of the global batch of this step, contiguous: (accumulation, micro_batch) integers."""
        start = step * self.global_batch + self.rank * self.share
        stop, parts = start + self.share, []
        while start < stop:
            epoch, offset = divmod(start, self.count)
            parts.append(self.permutation(epoch)[offset : offset + stop - start])
            start += len(parts[-1])
        return np.concatenate(parts).reshape(self.accumulation, self.micro_batch)
