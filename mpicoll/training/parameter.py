"""What is trained: an array, its gradient, and in what precision one computes with it."""

import numpy as np


def widened(array):
    """The array itself, or of one of 16 bits a copy in float32."""
    return array if array.itemsize > 2 else array.astype(np.float32)


class Parameter:
    """An array that is trained.

    Attributes:
        name: unique within a model, for messages.
        data: the values, C-contiguous.
        grad: the accumulated gradient, like data. A reducer replaces it once by a view into a bucket; whoever computes
            a gradient adds into it and never rebinds it.
    """

    __slots__ = ("data", "grad", "name")

    def __init__(self, name, data):
        self.name, self.data = name, np.asarray(data, order="C", like=data)
        self.grad = np.zeros_like(self.data)

    @property
    def value(self):
        """What is computed with: data, or of 16 bits a copy in float32, made anew each time."""
        return widened(self.data)

    def __repr__(self):
        return f"Parameter({self.name!r}, {self.data.dtype}{list(self.data.shape)})"
