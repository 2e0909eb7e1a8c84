"""The closed forms of the literature, each a text that is printed and evaluated: what is shown is what is proven.

p ranks, n bytes of the whole buffer, alpha a message, beta a byte sent, gamma a byte reduced. They hold where all
divides; for other counts `cost` has the exact numbers of every rank. Scratch memory is that of a rank, for all counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

# What a formula may have besides p and n: its name here, its name in print, what it is.
NAMES = {
    "up": ("ceil(lg p)", ""),
    "q": ("q", "q is the largest power of two in p"),
    "lq": ("lg q", "q is the largest power of two in p"),
    "fold": ("fold", "fold is 1 if p is no power of two, else 0"),
    "u": ("u", "u is the power of two from p up"),
    "ones": ("ones", "ones: all in the binary numbers below p"),
    "m": ("m", "m is the longest chunk"),
    "S": ("S", "S segments"),
    "k": ("k", "k parts"),
    "A": ("A", "A chunks in a message"),
    "lA": ("lg A", "A chunks in a message"),
    "M": ("M", "M ranks of a node"),
    "Q": ("Q", "Q nodes"),
    "R": ("R", "R ranks of the smallest node"),
}


class Form(NamedTuple):
    """How often an algorithm's time has alpha, beta and gamma, and how much scratch memory a rank takes.

    Attributes:
        bound: the times are an upper bound: never, always, or if p is no power of two ("folded").
        segments: S for small buffers, if nothing is said.
    """

    alpha: str
    beta: str = ""
    gamma: str = ""
    scratch: str = "0"
    bound: str = "never"
    segments: int = 1

    def __str__(self) -> str:
        terms = [(self.alpha, "alpha"), (self.beta, "beta"), (self.gamma, "gamma")]
        text = " + ".join(f"{_text(term, factor=True)} {unit}" for term, unit in terms if term)
        return {"never": text, "always": f"at most {text}", "folded": f"{text} (folded: at most)"}[self.bound]

    @property
    def memory(self) -> str:
        return _text(self.scratch)

    @property
    def names(self) -> str:
        """What the letters mean, other than p and n."""
        used = _words(" ".join((self.alpha, self.beta, self.gamma, self.scratch)))
        return "; ".join(dict.fromkeys(means for name, (_, means) in NAMES.items() if name in used and means))

    def times(self, p: int, n: int, **options: Any) -> list[Fraction]:
        """How often the time has alpha, beta and gamma; of k channels k times alpha."""
        alphas, betas, gammas = (self._evaluate(term, p, n, options) for term in (self.alpha, self.beta, self.gamma))
        return [options.get("channels", 1) * alphas, betas, gammas]

    def most_scratch(self, p: int, n: int, m: int, **options: Any) -> Fraction:
        """The most scratch that a rank may take, in the unit in which n, the buffer, and m, its longest chunk, are."""
        return self._evaluate(self.scratch, p, n, options, m)

    def is_exact(self, p: int, channels: int = 1) -> bool:
        """Whether the times are no bound; the channels number the ranks both ways, so none is the busiest in all."""
        return channels == 1 and (self.bound == "never" or (self.bound == "folded" and p & (p - 1) == 0))

    def _evaluate(self, term: str, p: int, n: int, options: dict[str, Any], m: int = 0) -> Fraction:
        nodes = Counter(options.get("nodes") or [0] * p).values()
        up, q = (p - 1).bit_length(), 1 << (p.bit_length() - 1)
        most = max(1, 1 << up >> 1)  # chunks in a message
        aggregate = 1 << (min(options.get("aggregate") or most, most).bit_length() - 1)
        values = {"p": p, "n": n, "m": m, "S": options.get("segments") or self.segments, "k": options.get("parts") or 1}
        values |= {"up": up, "q": q, "lq": q.bit_length() - 1, "fold": int(p > q), "u": 1 << up}
        values |= {"ones": sum(i.bit_count() for i in range(p)), "A": aggregate, "lA": aggregate.bit_length() - 1}
        values |= {"M": max(nodes), "R": min(nodes), "Q": len(nodes)}
        functions = {"ceil": math.ceil, "max": max, "min": min}
        exact = {name: Fraction(value) for name, value in values.items()}
        return Fraction(eval(term or "0", {"__builtins__": {}}, {**exact, **functions}))


def _words(term: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]+", term))


def _text(term: str, factor: bool = False) -> str:
    """ "2*(p-1)/p*n" as people write it, "2(p-1)/p n"; a sum in parentheses if it is a factor."""
    depths = [term[:i].count("(") - term[:i].count(")") for i, c in enumerate(term) if c in "+-"]
    if factor and 0 in depths:
        term = f"({term})"
    term = re.sub(r"(?<=[\d)])\*(?=\()", "", term).replace("*", " ")
    return re.sub(r"[A-Za-z]+", lambda match: NAMES.get(match[0], (match[0],))[0], term)


SHARE = "(p-1)/p*n"
_RING = Form("S*(p-1)", SHARE, SHARE, "(S+1)*ceil(m/S)", segments=2)
_PAIRS = "(p-1)*n"
_TREES = "(2*up+2*S-1)*n/(2*S)"  # all steps of the two trees
_HALVED = "(q-1)/q*n"
_DEALT = "(1+fold)*(q-1)/p*n+fold*(n+n/p)"  # of a pair of ranks, one may have two chunks
_CROSSED = "(M-1)/M*n+(Q-1)/Q*n/M"

FORMS: dict[tuple[str, str], Form] = {
    ("broadcast", "linear"): Form("p-1", _PAIRS),
    ("broadcast", "tree"): Form("up", "up*n"),
    ("broadcast", "ring"): Form("p-2+S", "(p-2+S)*n/S"),
    ("broadcast", "scatter_allgather"): Form("up+p-1", "2*" + SHARE),
    ("broadcast", "circulant"): Form("S-1+up", "(S-1+up)*n/S"),
    ("broadcast", "double_tree"): Form("2*up+2*S-1", _TREES, bound="always"),
    ("broadcast", "hierarchical"): Form(
        "k*(2*M+Q-5+2*S)", "(M-2+S)*n/S+(Q-2+S)*n/S/M+(M-1)/M*n", bound="always"
    ),
    ("reduce", "linear"): Form("p-1", _PAIRS, _PAIRS, "2*n"),
    ("reduce", "tree"): Form("up", "up*n", "up*n", "2*n"),
    ("reduce", "ring"): Form("p-2+S", "(p-2+S)*n/S", "(p-2+S)*n/S", "2*ceil(n/S)"),
    ("reduce", "recursive_halving"): Form("2*lq+fold", "2*(q-1)/q*n+fold*n", _HALVED + "+fold*n", "2*n"),
    ("reduce", "double_tree"): Form("2*up+2*S-1", _TREES, _TREES, "3*ceil(n/(2*S))", "always"),
    ("allreduce", "linear"): Form("2*(p-1)", "2*(p-1)*n", _PAIRS, "2*n"),
    ("allreduce", "exchange"): Form("p-1", _PAIRS, _PAIRS, _PAIRS),
    ("allreduce", "tree"): Form("2*up", "2*up*n", "up*n", "2*n"),
    ("allreduce", "recursive_doubling"): Form("lq+2*fold", "(lq+2*fold)*n", "(lq+fold)*n", "n"),
    ("allreduce", "ring"): _RING._replace(alpha="(S+1)*(p-1)", beta="2*" + SHARE),
    ("allreduce", "pairwise"): Form("2*(p-1)", "2*" + SHARE, SHARE, "2*m"),
    ("allreduce", "recursive_halving"): Form("2*lq+2*fold", "2*(q-1)/q*n+2*fold*n", _HALVED + "+fold*n", "n"),
    ("allreduce", "swing"): Form("2*lq+2*fold", "2*(q-1)/q*n+2*fold*n", _HALVED + "+fold*n", "n"),
    ("allreduce", "circulant"): Form("2*up", "2*" + SHARE, SHARE, "5*p*m/2"),
    ("allreduce", "double_tree"): Form(
        "4*up+4*S-4", "(4*up+4*S-4)*n/(2*S)", "(2*up+2*S-2)*n/(2*S)", "3*ceil(n/(2*S))", "always"
    ),
    ("allreduce", "hierarchical"): Form(
        "k*(S+1)*(M+Q-2)", f"2*({_CROSSED})", _CROSSED, "3*n/R+6*k", "always", segments=2
    ),
    ("reduce_scatter", "ring"): _RING,
    ("reduce_scatter", "pairwise"): Form("p-1", SHARE, SHARE, "2*m"),
    ("reduce_scatter", "circulant"): Form("up", SHARE, SHARE, "3*p*m/2"),
    ("reduce_scatter", "recursive_halving"): Form("lq+2*fold", _DEALT, "(1+fold)*(q-1)/p*n+fold*n", "2*n", "folded"),
    ("reduce_scatter", "swing"): Form("lq+2*fold", _DEALT, "(1+fold)*(q-1)/p*n+fold*n", "2*n", "folded"),
    ("reduce_scatter", "pat"): Form("lA+min(u/A,p)-1", SHARE, SHARE, "(A*(up-lA+2)-1)*m"),
    ("reduce_scatter", "hierarchical"): Form("k*S*(M+Q-2)", _CROSSED, _CROSSED, "3*n+6*k", "always", segments=2),
    ("allgather", "ring"): Form("p-1", SHARE),
    ("allgather", "pairwise"): Form("p-1", SHARE),
    ("allgather", "circulant"): Form("up", SHARE, scratch="p*m"),
    ("allgather", "recursive_doubling"): Form("lq+2*fold", _DEALT, scratch="n", bound="folded"),
    ("allgather", "swing"): Form("lq+2*fold", _DEALT, scratch="n", bound="folded"),
    ("allgather", "bruck"): Form("up", SHARE, scratch="2*(p-1)*m"),
    ("allgather", "pat"): Form("lA+min(u/A,p)-1", SHARE, scratch="2*A*m"),
    ("allgather", "hierarchical"): Form("k*(M+Q-2)", _CROSSED, scratch="n", bound="always"),
    ("alltoall", "pairwise"): Form("p-1", SHARE),
    ("alltoall", "bruck"): Form("up", "ones*n/p", scratch="n"),
    ("gather", "linear"): Form("p-1", SHARE),
    ("gather", "tree"): Form("up", SHARE, scratch="n/2"),
    ("scatter", "linear"): Form("p-1", SHARE),
    ("scatter", "tree"): Form("up", SHARE, scratch="n/2"),
    ("barrier", "recursive_doubling"): Form("lq+2*fold"),
    ("barrier", "dissemination"): Form("up"),
}  # fmt: skip
