"""The forms in which a collective is called."""

import numpy as np

FORMS = ["blocking", "nonblocking", "persistent"]


def perform(comm, form, name, *buffers, **arguments):
    """The collective's result in the given form; on two ranks that of the third call, replayed if it can be."""
    times = 3 if comm.size <= 2 else 1
    arrays = [buffer for buffer in buffers if isinstance(buffer, np.ndarray)]
    originals = [array.copy() for array in arrays]
    if form == "blocking":
        for _ in range(times):
            for array, original in zip(arrays, originals, strict=True):
                array[...] = original
            result = getattr(comm, name)(*buffers, **arguments)
        return result
    if form == "nonblocking":
        return getattr(comm, "i" + name)(*buffers, **arguments).wait()
    plan = getattr(comm, name + "_init")(*buffers, **arguments)
    for _ in range(times):
        for array, original in zip(arrays, originals, strict=True):
            array[...] = original
        plan.start()
        result = plan.wait()
    plan.free()
    return result
