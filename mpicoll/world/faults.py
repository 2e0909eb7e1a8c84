"""What the world finds, one class each; the text names ranks, rounds and values."""


class Fault(Exception):
    """An algorithm broke a rule of the language, or its result is wrong."""


# How messages meet.


class Deadlock(Fault):
    """Ranks wait for one another in a circle."""


class Unreceived(Fault):
    """A message whose receiver has finished."""


class Unsent(Fault):
    """A receive whose sender has finished."""


class WrongLength(Fault):
    """A message and its receive, or the operands of one operation, differ in length."""


# What a round is made of.


class NotYielded(Fault):
    """Something was made and not yielded."""


class UnknownItem(Fault):
    """Something was yielded that was not made since the last yield, or that is no item at all."""


class WrongPath(Fault):
    """A generator made a message on a comm that is not its own lane's."""


# What a round may touch.


class Overlap(Fault):
    """Within a round two messages, messages and work, or two lanes share memory that one of them writes."""


class SharedLane(Fault):
    """Within a round two lanes send to, or receive from, the same peer on the same lane number."""


class ReadOnly(Fault):
    """Something writes an array that is only to be read."""


# What the elements are made of.


class UnsetData(Fault):
    """Scratch memory that nothing was written to, or a buffer still being received, is used."""


class WrongElement(Fault):
    """An element is combined with, or ends in the place of, another one."""


class DoubledContribution(Fault):
    """A rank's contribution is in an element twice."""


class MissingContribution(Fault):
    """An element is finished, or is a result, without some rank's contribution."""


class NotFinished(Fault):
    """A result did not pass `op.finish`."""


class FinishedTwice(Fault):
    """An element passed `op.finish` a second time."""


class FinishedReduced(Fault):
    """An element that has passed `op.finish` is reduced further."""


class Divergence(Fault):
    """Two ranks hold the same element as different expressions: their bits can differ."""


class LeftEarly(Fault):
    """A rank left a barrier before all had entered."""
