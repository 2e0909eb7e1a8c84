"""No data at all: arrays that are only so long, for simulations of many ranks.

Arrays of one length are one object. So nothing can be checked but that messages meet and have their receive's length,
and nothing is counted: an algorithm is proven on `Symbols` first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import GeneratorType
from typing import Any, ClassVar

from ..language import Item
from .items import Message
from .path import Path


class Length:
    """So many elements of a kind, anywhere."""

    __array_interface__: ClassVar = {"data": (0,)}  # where `memory.access` looks for the address
    __slots__ = ("_array", "_elements", "nbytes")

    def __init__(self, kind: Nothing, count: int) -> None:
        self._array, self._elements, self.nbytes = kind.array, range(count), count * kind.itemsize

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, part: slice) -> Length:
        return self._array(len(self._elements[part]))

    def __setitem__(self, part: slice, other: Length) -> None:
        """What a message brings is not kept."""


class Nothing:
    """Elements of `itemsize` bytes that hold nothing; `array(count)` are so many."""

    array: Callable[[int], Length]

    def __init__(self, itemsize: int) -> None:
        self.itemsize = itemsize
        self.array = functools.cache(functools.partial(Length, self))

    def scratch(self, like: Any, count: int) -> Any:
        return self.array(count)

    # There is nothing to do.
    def read(self, array: Any) -> None: ...

    def poison(self, array: Any) -> None: ...

    def copy(self, out: Any, array: Any) -> None: ...

    def reduce(self, out: Any, a: Any, b: Any) -> None: ...

    def finish(self, out: Any) -> None: ...


class Unchecked(Path):
    """A path whose rounds are carried out and not looked at."""

    def _begin_round(self, items: tuple[Item, ...]) -> None:
        made, self.call.made = self.call.made, []
        lanes = [Unchecked(self.world, self.call, item, self) for item in items if isinstance(item, GeneratorType)]
        self._pending = 1 + len(lanes)
        messages = 0
        for item in made:
            if isinstance(item, Message):
                item.path, item.round, item.index, item.heard = self, self._rounds, messages, 0
                messages += 1
                self._pending += 1
                self.world.post(item)
            elif item.name == "op":
                item.path = self
                self._pending += self.world.takes_time(item)
        self._rounds += messages > 0
        for lane in lanes:
            lane.done()
        self.done()

    def _end_round(self) -> None:
        """Nothing is known of it."""
