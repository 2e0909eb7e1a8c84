"""Who waits for whom, and what the last one does: told when a wait lasts longer than MPICOLL_TIMEOUT, or on a signal.

A thread in every process answers what its rank is doing, also while the program computes or stands in a call of MPI's
own. A rank whose wait is given up asks all others of the communicator and follows the chain from peer to peer:

    rank 3 waits in allreduce (round 2: for rank 2, 500 bytes), for 600 s now
      rank 3 waits for rank 2 in allreduce (round 2: for rank 2, 500 bytes)
      rank 2 waits for rank 0 in allreduce (round 1: for rank 0, 500 bytes)
      rank 0 is in its own code: train.py:123 in forward

Then the job ends, since nobody catches the error. `kill -USR2` of a rank's process prints the same of that rank.
"""

import contextlib
import functools
import inspect
import json
import os
import select
import signal
import sys
import threading
import time
import traceback

from mpi4py import MPI

from .progress.path import KEPT
from .progress.wait import LONG, REPORT

TICK = 0.5  # s between two looks for questions
PATIENCE = 3.0  # s for answers
QUESTION = 4  # bytes: the number of the question, which its answers begin with
FRAMES = 8  # of a stack, the innermost
GROUPS = 8  # of ranks that have called different things, at most
SIGNAL = signal.SIGUSR2


class Watchdog:
    """The thread that answers, for the communicators in `transports`.

    Args:
        transports: the list of those that are open; it changes only under `guard`.
    """

    def __init__(self, transports, guard):
        self.transports, self.guard = transports, guard
        self._main = threading.main_thread().ident
        self._thread, self._wake, self._waking = None, None, None
        self._asked = 0  # how often this rank has asked

    def start(self):
        """The thread runs, where threads may call MPI; once more does nothing."""
        if self._thread or MPI.Query_thread() != MPI.THREAD_MULTIPLE:
            return
        if self._wake is None:
            self._wake, self._waking = os.pipe()
            os.set_blocking(self._waking, False)
            self._listen()
            self._end_before(MPI.Finalize)
        REPORT[:] = [self.report]
        self._thread = threading.Thread(target=self._watch, name="mpicoll watchdog", daemon=True)
        self._thread.start()

    def stop(self):
        """The thread has ended: MPI is about to."""
        if self._thread:
            thread, self._thread = self._thread, None
            REPORT.clear()
            os.write(self._waking, b"\0")
            thread.join()

    def _end_before(self, finalize):
        """A program that ends MPI itself, with communicators open, does so after `stop`."""

        @functools.wraps(finalize)
        def end():
            self.stop()
            finalize()

        MPI.Finalize = end

    def _listen(self):
        """The signal wakes the thread, whatever the main thread is doing; a program's own handler stays."""
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(SIGNAL) != signal.SIG_DFL:
            return
        before = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        if before != -1:  # somebody else is woken
            signal.set_wakeup_fd(before)
            return
        signal.signal(SIGNAL, lambda *_: None)

    def _watch(self):
        while self._thread:
            ready, _, _ = select.select([self._wake], [], [], TICK)
            if ready and SIGNAL in os.read(self._wake, 100):
                self._tell()
            with self.guard:
                for transport in self.transports if self._thread else ():
                    with contextlib.suppress(MPI.Exception):  # a rank has died: whoever waits for it is told
                        self._answer(transport)

    def _answer(self, transport):
        """The questions that have come are answered."""
        mpi, status = transport.mpi, MPI.Status()
        while mpi.Iprobe(MPI.ANY_SOURCE, transport.question, status):
            asking = status.Get_source()
            number = bytearray(QUESTION)
            mpi.Recv([number, MPI.BYTE], asking, transport.question)
            text = bytes(number) + json.dumps(self.state(transport)).encode()
            KEPT.append((text, mpi.Isend([text, MPI.BYTE], asking, transport.answer)))

    def _tell(self):
        with self.guard:
            first = self.transports[:1]
        for transport in first:
            state = self.state(transport)
            what = f"waits in {state['waits']}" if state["waits"] else f"is in its own code: {state['where']}"
            lines = [f"rank {transport.world_rank(transport.rank)} {what}", *state["stack"], *_last(state)]
            print("\n".join(f"[rank {transport.rank}] {line}" for line in lines), file=sys.stderr, flush=True)

    def state(self, transport):
        """What this rank does: what it waits for in a collective, or where its program is, and its last calls."""
        frame = sys._current_frames().get(self._main)
        stack = traceback.extract_stack(frame)[-FRAMES:] if frame else []
        where = f"{os.path.basename(stack[-1].filename)}:{stack[-1].lineno} in {stack[-1].name}" if stack else "it ends"
        pauses = sorted(LONG.values(), key=lambda pause: pause.path.call.transport is not transport)
        waits = pauses[0] if pauses else None  # other threads may wait, too
        last = list(transport.last)
        return {
            "waits": waits and _what(waits.words),
            "peers": sorted(waits.path.call.transport.world_rank(peer) for peer in waits.peers) if waits else [],
            "where": where,
            "stack": "".join(traceback.format_list(stack)).splitlines(),
            "calls": transport.calls,
            "last": [(name, _name(algorithm), nbytes) for name, algorithm, nbytes in last[-5:]],
        }

    def report(self, path):
        """Who waits for whom, from this rank on, as far as the others answer in time."""
        transport = path.call.transport
        mine, own = self.state(transport), transport.world_rank(transport.rank)
        mine["waits"] = _what(str(path))
        mine["peers"] = sorted(map(transport.world_rank, path.peers()))
        asked, states = self._ask(transport)
        members = set(map(transport.world_rank, range(transport.size)))
        lines = chain({own: mine, **states}, own, asked)
        return "\n".join([*lines, *progressed({own: mine, **{r: s for r, s in states.items() if r in members}})])

    def _ask(self, transport):
        """(Who was asked, the states of those that answer), by rank of the world.

        Asked are all of the communicator, and all whom others reach that are open: a chain may leave the first one.
        """
        with self.guard:
            others = [other for other in self.transports if other is not transport and not other.broken]
        self._asked += 1
        number, status = self._asked.to_bytes(QUESTION, "little"), MPI.Status()
        own = transport.world_rank(transport.rank)
        asked, states, asking = {own}, {}, [transport, *others]
        for by in asking:
            for rank in range(by.size):
                if (world := by.world_rank(rank)) not in asked:
                    asked.add(world)
                    KEPT.append((number, by.mpi.Isend([number, MPI.BYTE], rank, by.question)))
        until = time.monotonic() + PATIENCE
        while len(states) < len(asked) - 1 and time.monotonic() < until:
            by = next((by for by in asking if by.mpi.Iprobe(MPI.ANY_SOURCE, by.answer, status)), None)
            if by is None:
                time.sleep(0.01)
                continue
            text = bytearray(status.Get_count(MPI.BYTE))
            by.mpi.Recv([text, MPI.BYTE], status.Get_source(), by.answer)
            if text.startswith(number):  # not a late answer to a question before
                states[by.world_rank(status.Get_source())] = json.loads(text[QUESTION:])
        return asked, states


def chain(states, rank, asked):
    """Lines: who waits for whom from `rank` on, and what the last one does.

    Args:
        states: of the ranks that are known, see `Watchdog.state`.
        asked: the ranks that were asked for theirs.
    """
    lines, seen = [], []
    while rank in states and states[rank]["peers"]:
        state, seen = states[rank], [*seen, rank]
        peers = state["peers"]
        # The one that tells the most: who is in its own code, or says nothing, is what all others wait for.
        rank = min(peers, key=lambda peer: (bool(states.get(peer, {}).get("peers")), peer))
        lines.append(f"  rank {seen[-1]} waits for rank {rank} in {state['waits']}")
        if rank in seen:
            lines.append(
                f"  and so in a circle: {_ranks(sorted(seen[seen.index(rank) :]))} wait for each other; do all ranks "
                "call the same collectives in the same order? MPICOLL_DEBUG=1 compares them"
            )
            return lines
    if rank not in asked:
        lines.append(
            f"  rank {rank} shares no open communicator with rank {seen[0]}: kill -USR2 of its process asks it"
        )
    elif rank not in states:
        lines.append(
            f"  rank {rank} does not answer: it is stopped, or dead, or in code that holds Python's interpreter lock"
        )
    else:
        lines.append(f"  rank {rank} is in its own code: {states[rank]['where']}")
        lines += [f"    {line}" for line in states[rank]["stack"]]
    return lines


def progressed(states):
    """Lines: what the ranks have called last, grouped by that, those that have started the fewest calls first."""
    groups = {}
    for rank in sorted(states):
        groups.setdefault((states[rank]["calls"], *map(tuple, states[rank]["last"])), []).append(rank)
    lines = []
    for _, ranks in sorted(groups.items(), key=lambda group: group[0][0])[:GROUPS]:
        count = states[ranks[0]]["calls"]
        has = "have" if len(ranks) > 1 else "has"
        lines.append(
            f"  {_ranks(ranks)} {has} started {count} call{'s' * (count != 1)} on this communicator; the last:"
        )
        lines += _last(states[ranks[0]])
    return lines


def _what(words):
    """What a rank waits in, from the words of a path."""
    return words.partition(" waits in ")[2]


def _ranks(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _last(state):
    first = state["calls"] - len(state["last"]) + 1
    return [
        f"    call {first + i}: {name}{f' by {algorithm}' if algorithm else ''}, {nbytes:,} bytes"
        for i, (name, algorithm, nbytes) in enumerate(state["last"])
    ]


def _name(algorithm):
    """The name of an algorithm's module, which is the algorithm's."""
    if algorithm is None:
        return None
    while isinstance(algorithm, functools.partial):
        algorithm = algorithm.func
    found = inspect.unwrap(algorithm)
    with contextlib.suppress(AttributeError):
        return found.__module__.rpartition(".")[2]
    return type(found).__name__
