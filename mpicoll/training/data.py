"""Data as samples: rows of small integers, of which the last ones are to be predicted from those before.

Attributes of both kinds, beside those they say: `train` and `held_out`, rows of samples; `predicted`, how many last
numbers of a row are predicted, and `unit`, what one of these is; `classes`, how many different ones there are;
`sha256`, of the content in hexadecimal. str() tells how much there is.
"""

import hashlib
import importlib
from pathlib import Path

import numpy as np

DIGITS = "digits"


def read(path=None):
    """The bytes of the data: the file's, or without a path those of the documentation that ships in CPython.

    The path "digits" gives the images of scikit-learn, for `Digits`.

    Raises:
        ValueError: the file cannot be read; the message names it and says why.
    """
    if path == DIGITS:
        try:
            found = importlib.import_module("sklearn.datasets").load_digits()
        except ImportError:
            raise ValueError("the digits come with scikit-learn: pip install 'mpicoll[digits]'") from None
        return np.column_stack([found.data, found.target]).astype(np.uint8).tobytes()
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

    Sample i is row i of `train`: the characters i .. i + context. Predicted are the last `predicted` of them, each from
    all before it in the row. Every held-out character is predicted by exactly one row of `held_out`; the first ones see
    the end of the training text.

    Attributes:
        characters: the length of the text.
        vocabulary: its distinct characters as a sorted string; token t stands for vocabulary[t].
        tokens: the text, one after another; (characters,) unsigned integers.
        train, held_out: (samples, context + 1) windows on the tokens, not to be written; nothing is copied.

    Args:
        content: bytes.
        context: characters from which the next one is predicted.
        predicted: 1, the last; `context` for a model that predicts at every position.
        name: what messages call the text.

    Raises:
        ValueError: the text is empty, not UTF-8, or too short for one sample of each kind.
    """

    unit = "character"

    def __init__(self, content, context, name="the text", predicted=1):
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
        self.classes, self.predicted = len(codes), predicted
        split = self.characters - self.characters // 10 // predicted * predicted
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
        self.train = windows[: self._split]
        self.held_out = windows[self._split + self.predicted - 1 :: self.predicted]

    def __str__(self):
        held_out = len(self.held_out) * self.predicted
        return f"{self.characters:,} characters, {self.classes} different ones; {held_out:,} held out"


class Digits:
    """Images of handwritten digits, 8 x 8 pixels from 0 to 16, and which digit it is; the last tenth is held out.

    A sample is 64 pixels and the digit, (65,) uint8.

    Args:
        content: bytes, from `read`.
    """

    pixels, white, classes, predicted, unit = 64, 16, 10, 1, "image"

    def __init__(self, content):
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._cut(np.frombuffer(content, np.uint8).reshape(-1, self.pixels + 1))

    def to(self, place):
        """The data itself; all samples are what `place` made of them (see models)."""
        self._cut(place(self._rows))
        return self

    def _cut(self, rows):
        split = len(rows) - len(rows) // 10
        self._rows, self.train, self.held_out = rows, rows[:split], rows[split:]

    def __str__(self):
        return f"{len(self._rows):,} images, {self.classes} digits; {len(self.held_out):,} held out"
