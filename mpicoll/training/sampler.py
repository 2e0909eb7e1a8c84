"""Which samples a rank sees at which step, as a function of the seed alone."""

import numpy as np


class Sampler:
    """Cuts an endless stream of samples into global batches, and every global batch into one share per rank.

    Shares are equal or, where the ranks do not divide the batch, the first ones have a sample more.

    The stream is one permutation of all samples per epoch, one epoch after the other, so every sample is seen exactly
    once per epoch, also where a batch reaches over the end of one. The permutation is a function of (seed, epoch):
    there is no epoch to set and forget, and the global batch of a step is the same for every number of ranks.

    Where samples overlap, an epoch takes one of every `stride`, from a first one that is drawn for each epoch.

    Args:
        count: samples in the data, at least `stride`.
        global_batch: samples per step over all ranks.
        micro_batch: samples that a rank computes at a time, at most; by default its whole share.
        stride: how far apart the samples of an epoch are.

    Attributes:
        count: samples of an epoch.
        shares, share: samples per step of every rank, and of this one.
        divisor: what sums over a rank's samples are divided by, so that the average over all ranks is the mean.
        micro_batch: the most samples that any rank computes at a time.
        accumulation: parts of at most so many, into which this rank cuts its share (`numpy.array_split`).

    Raises:
        ValueError: the global batch is larger than the data or smaller than the number of ranks, or the micro-batch is
            not positive.
    """

    def __init__(self, count, global_batch, rank=0, size=1, seed=0, micro_batch=None, stride=1):
        count //= stride  # the same for every first one
        if not 1 <= global_batch <= count:
            raise ValueError(
                f"the global batch is {global_batch}, the data has {count} training samples: "
                f"choose a batch from 1 to {count}, or more data"
            )
        if global_batch < size:
            raise ValueError(
                f"the global batch of {global_batch} is smaller than the {size} ranks that share it: "
                f"choose a batch from {size} up, or fewer ranks"
            )
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"the micro-batch is {micro_batch} samples; it has to be 1 or more")
        self.count, self.global_batch, self.seed, self.stride = count, global_batch, seed, stride
        self.divisor = global_batch / size
        short, longer = divmod(global_batch, size)
        self.shares = [short + (r < longer) for r in range(size)]
        self.share, self._first = self.shares[rank], sum(self.shares[:rank])
        self.micro_batch = min(micro_batch or self.shares[0], self.shares[0])
        self.accumulation = -(-self.share // self.micro_batch)
        self._epoch, self._permutation = None, None

    def permutation(self, epoch):
        """The samples in the order of this epoch; (count,) integers."""
        if epoch != self._epoch:
            rng = np.random.default_rng([self.seed, epoch])
            self._permutation = rng.permutation(self.count) * self.stride + rng.integers(self.stride)
            self._epoch = epoch
        return self._permutation

    def batch(self, step):
        """This rank's part of the global batch of this step, contiguous: (share,) integers."""
        start = step * self.global_batch + self._first
        stop, parts = start + self.share, []
        while start < stop:
            epoch, offset = divmod(start, self.count)
            parts.append(self.permutation(epoch)[offset : offset + stop - start])
            start += len(parts[-1])
        return np.concatenate(parts)
