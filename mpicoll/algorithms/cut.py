"""How a buffer is cut into pieces: chunks, one for each rank, and segments of a chunk for pipelining."""

import itertools


def bounds(count, parts):
    """parts + 1 positions that cut `count` elements into parts as even as possible, the longer ones first."""
    short, longer = divmod(count, parts)
    return [i * short + min(i, longer) for i in range(parts + 1)]


def cut(array, parts):
    """The array's views in `parts` pieces as even as possible, the longer ones first."""
    at = bounds(len(array), parts)
    return [array[a:b] for a, b in itertools.pairwise(at)]


def split(array, counts):
    """The array's views in pieces of the given counts, which add up to its length."""
    views, start = [], 0
    for count in counts:
        views.append(array[start : start + count])
        start += count
    return views
