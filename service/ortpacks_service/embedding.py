"""This module turns texts into vectors of length 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ortpacks_runtime import Session
from tokenizers import Tokenizer

_MAX_TOKENS = 256
"""The most tokens of a text; further ones are cut off.

Source: ``max_seq_length`` of all-MiniLM-L6-v2 (sentence_bert_config.json).
"""

_MAX_CHARACTERS = 64 * _MAX_TOKENS
"""The most characters that the tokenizer gets, since it reads a text to its end before it cuts tokens off."""


@dataclass(frozen=True)
class Embeddings:
    """Vectors and numbers of tokens of some texts."""

    vectors: NDArray[np.float32]
    """Array of shape (texts, dimensions)."""
    tokens: NDArray[np.int64]
    """Number of tokens of each text."""


def joined(parts: Sequence[Embeddings], order: Sequence[int]) -> Embeddings:
    """Return the parts as one; their rows, one after the other, are those of the texts at ``order``."""
    if len(parts) == 1 and len(order) == 1:
        return parts[0]
    back = np.argsort(order)
    vectors, tokens = (
        np.concatenate([getattr(part, name) for part in parts])[back] for name in ("vectors", "tokens")
    )
    return Embeddings(vectors, tokens)


class Embedder:
    """A sentence transformer: a model and its tokenizer."""

    def __init__(self, session: Session, tokenizer: Path) -> None:
        """Raises ``ValueError`` for a file that is not a tokenizer, or a model of other inputs or outputs."""
        self._session = session
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            raise ValueError(f"{tokenizer} cannot be read: {error}") from error
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._inputs = {value.name for value in session.inner.get_inputs()}
        (self.dimensions,) = self.embed(["?"]).vectors.shape[1:]

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of the texts."""
        found = self._tokenizer.encode_batch_fast([_beginning(text) for text in texts])
        ids = np.array([one.ids for one in found], np.int64)
        mask = np.array([one.attention_mask for one in found], np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        values = self._session.run(None, {name: feed[name] for name in feed if name in self._inputs})
        return Embeddings(_normalised(values[0], mask), mask.sum(1))


def _beginning(text: str) -> str:
    """Return as much of a text as decides its first 256 tokens; long white space may come before them."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    return " ".join(text.split(maxsplit=_MAX_TOKENS)[:_MAX_TOKENS])[:_MAX_CHARACTERS]


def _normalised(value: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return rows of length 1. Vectors for each token are averaged over the tokens that are not padding."""
    rows = value.astype(np.float32, copy=False)
    if rows.ndim == 3:  # noqa: PLR2004 - (texts, tokens, width): exported without pooling
        rows = (rows * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)
