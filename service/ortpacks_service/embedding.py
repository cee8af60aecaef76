"""This module turns texts into vectors of length 1."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ortpacks_runtime import Session
from ortpacks_runtime.providers import CPU, ORT_NAMES
from tokenizers import Tokenizer

from ortpacks_service.errors import RequestError

_MAX_TOKENS = 256
"""The most tokens of a text; further ones are cut off.

Source: ``max_seq_length`` of all-MiniLM-L6-v2 (sentence_bert_config.json).
"""

_MAX_CHARACTERS = 64 * _MAX_TOKENS
"""The most characters that the tokenizer gets, since it reads a text to its end before it cuts tokens off."""

_RUN = 8
"""Tokens that a thread of the CPU computes in the time that a run takes before its first token.

Measured with MiniLM: a run takes as long as 16 tokens on one thread, and as 23 on two.
"""


_LEAST = np.float32(1e-12)
"""The least length by which a vector is divided; the zero vector stays as it is."""


@dataclass(frozen=True)
class Embeddings:
    """Vectors and numbers of tokens of some texts."""

    vectors: NDArray[np.float32]
    """Array of shape (texts, dimensions)."""
    tokens: NDArray[np.int64]
    """Number of tokens of each text."""
    lengths: NDArray[np.float32]
    """Length of each vector as the model returned it; a row of ``vectors`` has length 1."""

    def of(self, texts: slice | NDArray[np.intp]) -> Embeddings:
        """Return the embeddings of the texts with these numbers, in their order."""
        return Embeddings(self.vectors[texts], self.tokens[texts], self.lengths[texts])

    def require_vectors(self) -> None:
        """Raise ``RequestError`` for a text without tokens, or whose vector has no direction."""
        for at, (tokens, length) in enumerate(zip(self.tokens, self.lengths, strict=True)):
            if not tokens:
                raise RequestError(f"text {at}, counted from 0: the tokenizer finds no token in it")
            if not math.isfinite(length):
                raise RequestError(f"text {at}, counted from 0: the model returns NaN or an infinity", 500)
            if not length:
                raise RequestError(f"text {at}, counted from 0: the model returns only zeros for it")


def joined(parts: Sequence[Embeddings], order: Sequence[int]) -> Embeddings:
    """Return the parts as one; their rows, one after the other, are those of the texts at ``order``."""
    if len(parts) == 1 and len(order) == 1:
        return parts[0]
    vectors, tokens, lengths = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("vectors", "tokens", "lengths")
    )
    return Embeddings(vectors, tokens, lengths).of(np.argsort(order))


class Embedder:
    """A sentence transformer: a model and its tokenizer."""

    def __init__(self, session: Session, tokenizer: Path) -> None:
        """Raises ``ValueError`` for a file that is not a tokenizer and for a model of other outputs.

        For a model of other inputs, raises what ONNX Runtime raises.
        """
        self._session = session
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            raise ValueError(f"{tokenizer} cannot be read: {error}") from error
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.no_padding()
        self._inputs = {value.name for value in session.inner.get_inputs()}
        tried = self.embed(["?", "? ?"])  # fails for a fixed number of texts or tokens
        self.dimensions = tried.vectors.shape[1]

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of the texts.

        On a CPU, texts of different lengths are computed in several runs, since padding takes as long as
        tokens there.
        """
        found = self._tokenizer.encode_batch_fast([_beginning(text) for text in texts])
        rows = [one.ids for one in found]
        order = sorted(range(len(rows)), key=lambda at: len(rows[at]), reverse=True)
        parts = cut([rows[at] for at in order], self._tokens_of_a_run())
        return joined([self._run(part) for part in parts], order)

    def _run(self, rows: Sequence[Sequence[int]]) -> Embeddings:
        """Return the vectors of texts that are given as the numbers of their tokens, the longest first."""
        tokens = np.array([len(row) for row in rows])
        ids = np.zeros((len(rows), max(1, tokens[0])), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)], mask[at, : len(row)] = row, 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        values = self._session.run(None, {name: feed[name] for name in feed if name in self._inputs})
        shape = np.shape(values[0])
        if len(shape) not in (2, 3) or shape[0] != len(rows):
            raise ValueError(
                f"the model's first output has shape {shape} for {len(rows)} texts; (texts, dimensions) or "
                "(texts, tokens, dimensions) is wanted"
            )
        vectors = _averaged(values[0].astype(np.float32, copy=False), mask)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        return Embeddings(vectors / np.maximum(lengths[:, None], _LEAST), tokens, lengths)

    def _tokens_of_a_run(self) -> float:
        """Return how many tokens of padding take as long as another run; on a GPU no number of them does."""
        inner = self._session.inner
        if inner.get_providers()[0] != ORT_NAMES[CPU]:
            return math.inf
        threads = inner.get_session_options().intra_op_num_threads or os.cpu_count() or 1
        return _RUN * (threads + 1)


def cut(rows: Sequence[Sequence[int]], run: float) -> list[Sequence[Sequence[int]]]:
    """Cut rows, the longest first, where that saves more padding than ``run`` tokens, the cost of a run."""
    saved, at = max(((len(rows) - at) * (len(rows[0]) - len(rows[at])), at) for at in range(len(rows)))
    return [*cut(rows[:at], run), *cut(rows[at:], run)] if saved > run else [rows]


def _beginning(text: str) -> str:
    """Return as much of a text as decides its first 256 tokens; long white space may come before them."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    return " ".join(text.split(maxsplit=_MAX_TOKENS)[:_MAX_TOKENS])[:_MAX_CHARACTERS]


def _averaged(values: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return a row for each text; vectors of tokens are averaged over those that are not padding."""
    if values.ndim == 3:  # noqa: PLR2004 - (texts, tokens, width): exported without pooling
        values = (values * mask[..., None]).sum(1) / np.maximum(mask.sum(1, keepdims=True), 1)
    return values.astype(np.float32, copy=False)
