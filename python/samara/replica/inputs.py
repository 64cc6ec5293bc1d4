# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pipelines of batches, read ahead."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from samara.replica.nest import Nest


class _ReadAhead:
    """A pipeline and the thread that reads it ahead. The thread refers to this object only, so that its owner can be
    garbage-collected."""

    def __init__(self, source: Any, depth: int) -> None:
        if callable(source) and not hasattr(source, "__iter__"):
            source = iter(source, None)
        self._source, self._depth = iter(source), depth
        self._changed = threading.Condition()
        self._ready, self._ended, self._quit, self._error = [], False, False, None
        if depth > 0:
            threading.Thread(target=self._read, name="input", daemon=True).start()

    def _read(self) -> None:
        try:
            for batch in self._source:
                with self._changed:
                    self._changed.wait_for(lambda: self._quit or len(self._ready) < self._depth)
                    if self._quit:
                        return
                    self._ready.append(batch)
                    self._changed.notify_all()
        except Exception as error:  # raised by the next call of next()
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def next(self) -> Any:
        """Returns the next batch; None at the end."""
        if self._depth == 0:
            return next(self._source, None)
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended)
            if self._ready:
                self._changed.notify_all()
                return self._ready.pop(0)
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._quit = True
            self._changed.notify_all()


class Input:
    """The pipelines of this rank, made by Replicator.make_input."""

    def __init__(self, mode: str, sources: list[Any], batches: int, prefetch: int) -> None:
        self.mode, self._batches, self._last, self._like, self._spec = mode, batches, None, None, None
        self._readers = [_ReadAhead(source, prefetch * batches) for source in sources]
        weakref.finalize(self, lambda readers: [reader.close() for reader in readers], self._readers)

    def _next(self, core: Any) -> list[Any] | None:
        """Returns a batch for each local replica; None when all replicas have run out."""
        read = [reader.next() for reader in self._readers for _ in range(self._batches)]
        nests = [None if batch is None else Nest(batch) for batch in read]
        # ranks that have no batch of their own, of a single input or of their first, learn the structure from others'
        packed = core.world_size > 1 and (self.mode == "single" or self._last is None)
        shared = core.share_batches(self.mode, [n and (n.packed() if packed else n.leaves) for n in nests], self._last)
        if shared is None:
            return None
        batches, self._last = shared
        if packed:
            self._spec = next((leaves[-1] for leaves in [*batches, self._last] if len(leaves[-1])), self._spec)
            batches = [Nest.unpacked([*leaves[:-1], self._spec]) for leaves in batches]
            if self.mode != "single":
                self._last, self._like = self._last[:-1], Nest(batches[0])
            return batches
        self._like = next((nest for nest in nests if nest is not None), self._like)
        return [self._like.fill(leaves) for leaves in batches]
