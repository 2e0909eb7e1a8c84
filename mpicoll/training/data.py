"""Text as samples: `context` characters and the one that follows."""

import hashlib
import importlib
from pathlib import Path

import numpy as np


def read(path=None):
    """The bytes of the text: the file's, or without a path those of the documentation that ships in CPython.

    Raises:
        ValueError: the file cannot be read; the message names it and says why.
    """
    if path is None:
        try:
            return "".join(importlib.import_module("pydoc_data.topics").topics.values()).encode()
        except ImportError:
            raise ValueError("this Python comes without pydoc_data.topics, the default text; use --data FILE") from None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"data file {path}: {error.strerror}") from None


class Text:
    """A text, its vocabulary, and its samples; the last tenth is held out.

    Sample i is row i of `train`: the characters i .. i + context - 1 and, in the last column, the one to predict. Every
    held-out character is predicted by exactly one row of `held_out`; the first ones see the end of the training text.

    Attributes:
        characters: the length of the text.
        vocabulary: its distinct characters as a sorted string; token t stands for vocabulary[t].
        sha256: of the bytes, in hexadecimal.
        tokens: the text, one after another; (characters,) unsigned integers.
        train, held_out: (samples, context + 1) windows on the tokens, not to be written; nothing is copied.

    Args:
        content: bytes.
        context: characters from which the next one is predicted.
        name: what messages call the text.

    Raises:
        ValueError: the text is empty, not UTF-8, or too short for one sample of each kind.
    """

    def __init__(self, content, context, name="the text"):
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} is not UTF-8: byte {content[error.start]:#04x} at offset {error.start}; convert it first"
            ) from None
        if not text:
            raise ValueError(f"{name} is empty")
        codes, tokens = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
        self.characters, self.vocabulary = len(text), "".join(map(chr, codes))
        split = self.characters - self.characters // 10
        if split <= context or split == self.characters:
            raise ValueError(
                f"{name} has {self.characters} characters, too few for a context of {context}: at least one sample to "
                f"train on and one to hold out are needed"
            )
        # The smallest type: indices travel through memory, and short integers are sorted faster.
        self.tokens, self._split = tokens.astype(np.min_scalar_type(len(codes) - 1)), split - context
        self._cut(context + 1)

    def to(self, place):
        """The text itself; the tokens, and with them all samples, are what `place` made of them (see models)."""
        self.tokens = place(self.tokens)
        self._cut(self.train.shape[1])
        return self

    def _cut(self, length):
        windows = np.lib.stride_tricks.sliding_window_view(self.tokens, length)
        self.train, self.held_out = windows[: self._split], windows[self._split :]
