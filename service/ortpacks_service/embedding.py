"""This module turns texts into vectors of length 1."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ortpacks_runtime import Session
from ortpacks_runtime.providers import CPU, ORT_NAMES
from tokenizers import Tokenizer

from ortpacks_service.errors import RequestError
from ortpacks_service.memory import TOO_LARGE, Runs, RunTooLargeError

_LIMITS = (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length"))
"""Files and keys of Hugging Face's models with the most tokens of a text; the first that is there counts."""

_MAX_TOKENS, _MOST_TOKENS = 256, 1 << 15
"""The most tokens where no file has a limit, and where one has none that any model could mean (1e30)."""

_LETTERS, _MOST_CHARACTERS = 64, 1 << 17
"""The most characters for each token, and of all texts that the tokenizer gets at once.

It reads a text to its end before it cuts tokens off, and takes 150 bytes of memory for a token.
"""

_WORD = re.compile(r"\S+")

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
    cut: NDArray[np.bool_]
    """Whether the end of each text was cut off, as the model takes no more tokens."""

    def of(self, texts: slice | NDArray[np.intp]) -> Embeddings:
        """Return the embeddings of the texts with these numbers, in their order."""
        return Embeddings(*(getattr(self, one.name)[texts] for one in fields(self)))

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
    columns = (np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Embeddings))
    return Embeddings(*columns).of(np.argsort(order))


class Embedder:
    """A sentence transformer: a model and its tokenizer."""

    def __init__(self, session: Session, tokenizer: Path, runs: Runs | None = None) -> None:
        """``runs`` are those of all models of the process.

        Raises ``ValueError`` for a file that is not a tokenizer and for a model of other outputs. For a model
        of other inputs, raises what ONNX Runtime raises.
        """
        self._session = session
        self._runs = runs or Runs()
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            raise ValueError(f"{tokenizer} cannot be read: {error}") from error
        self.most_tokens = _limit(tokenizer.parent)
        self._tokenizer.enable_truncation(self.most_tokens)
        self._tokenizer.no_padding()
        self._inputs = {value.name for value in session.inner.get_inputs()}
        self._most = 1 if _depends_on_its_neighbours(session) else sys.maxsize
        """The most tokens of a run, padding included; one text may have more."""
        tried = self.embed(["?", "? ?"])  # fails for a fixed number of texts or tokens
        self.dimensions = tried.vectors.shape[1]

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of the texts.

        On a CPU, texts of different lengths are computed in several runs, since padding takes as long as
        tokens there. Raises ``RequestError`` for a text that takes more memory than there is for runs.
        """
        rows: list[Sequence[int]] = []
        shortened: list[bool] = []
        for part in self._begun(texts):
            encoded = self._tokenizer.encode_batch_fast([text for text, _ in part])
            rows += [one.ids for one in encoded]
            shortened += [bool(was or one.overflowing) for (_, was), one in zip(part, encoded, strict=True)]
        order = sorted(range(len(rows)), key=lambda at: len(rows[at]), reverse=True)
        parts = cut([rows[at] for at in order], self._tokens_of_a_run())
        found = joined([self._in_runs(part) for part in parts], order)
        return replace(found, cut=np.array(shortened))

    def _begun(self, texts: Sequence[str]) -> Iterator[list[tuple[str, bool]]]:
        """Yield parts of the texts that the tokenizer may get at once, each text as ``_beginning`` has it."""
        part: list[tuple[str, bool]] = []
        size = 0
        for text in texts:
            begun = _beginning(text, self.most_tokens)
            if part and size + len(begun[0]) > _MOST_CHARACTERS:
                yield part
                part, size = [], 0
            part.append(begun)
            size += len(begun[0])
        yield part

    def _in_runs(self, rows: Sequence[Sequence[int]]) -> Embeddings:
        """Return the vectors of rows, the longest first, in as many runs as the memory needs."""
        count = max(1, self._most // max(1, len(rows[0])))
        if len(rows) > count:
            parts = [self._in_runs(rows[at : at + count]) for at in range(0, len(rows), count)]
            return joined(parts, range(len(rows)))
        try:
            return self._run(rows)
        except RunTooLargeError as error:
            if len(rows) == 1:
                what = f"a text of {len(rows[0])} tokens: {TOO_LARGE}: {error}. Send shorter texts."
                raise RequestError(what, 413) from None
        self._most = len(rows) * len(rows[0]) // 2
        return self._in_runs(rows)

    def _run(self, rows: Sequence[Sequence[int]]) -> Embeddings:
        """Return the vectors of texts that are given as the numbers of their tokens, the longest first."""
        tokens = np.array([len(row) for row in rows])
        ids = np.zeros((len(rows), max(1, tokens[0])), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)], mask[at, : len(row)] = row, 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        inputs = {name: feed[name] for name in feed if name in self._inputs}
        values = self._runs.run(self._session, None, inputs)
        shape = np.shape(values[0])
        if len(shape) not in (2, 3) or shape[0] != len(rows):
            wanted = "(texts, dimensions) or (texts, tokens, dimensions) is wanted"
            raise ValueError(f"the model's first output has shape {shape} for {len(rows)} texts; {wanted}")
        vectors = _averaged(values[0].astype(np.float32, copy=False), mask)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        whole = np.zeros(len(rows), np.bool_)
        return Embeddings(vectors / np.maximum(lengths[:, None], _LEAST), tokens, lengths, whole)

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


def _limit(folder: Path) -> int:
    """Return the most tokens of a text, by the first file that has a limit.

    Raises ``ValueError`` for a file that cannot be read.
    """
    for name, key in _LIMITS:
        file = folder / name
        try:
            value = json.loads(file.read_text("utf-8")).get(key) if file.is_file() else None
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{file} is no JSON object: {error}") from error
        if isinstance(value, int) and 0 < value < _MOST_TOKENS:
            return value
    return _MAX_TOKENS


def _depends_on_its_neighbours(session: Session) -> bool:
    """Return whether a text's vector depends on the other texts of its run.

    Dynamic quantisation has one scale for the numbers of all texts together.
    """
    report = session.report
    if report.provider != CPU:
        return False
    with Path(report.model).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(b"DynamicQuantize") >= 0


def _beginning(text: str, most: int) -> tuple[str, bool]:
    """Return as much of a text as decides its first tokens, and whether that is less than the text.

    Long white space may come before them. Nothing of the text's size is made.
    """
    begun, characters = "", min(_LETTERS * most, _MOST_CHARACTERS)
    if len(text) <= characters:
        return text, False
    for number, word in enumerate(_WORD.finditer(text)):
        if number == most or len(begun) > characters:
            return begun[:characters], True
        begun += " " * (number > 0) + text[word.start() : min(word.end(), word.start() + characters + 1)]
    return begun[:characters], len(begun) > characters


def _averaged(values: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return a row for each text; vectors of tokens are averaged over those that are not padding."""
    if values.ndim == 3:  # noqa: PLR2004 - (texts, tokens, width): exported without pooling
        weights = mask[:, None, :].astype(np.float32)
        values = (weights @ values)[:, 0] / np.maximum(mask.sum(1, keepdims=True), 1)
    return values.astype(np.float32, copy=False)
