"""Flat JAX functions: arrays in, arrays out, and their transforms, each compiled once.

A flat function takes ``(constants, arrays)``, two tuples. Only ``arrays`` are differentiated and batched; constants
are what the caller passed that is not a torch tensor (Python scalars keep their weak type, PRNG keys stay keys).
The transforms of a flat function are flat functions, so they compose to any order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax

from ._outputs import CACHE_SIZE, Arrays, Constants, Mask, Outputs, own, pull, replace, select
from ._reverse import Forward, forward


class Flat:
    """A flat JAX function, its compiled form (:attr:`run`) and its transforms, remembered while it lives."""

    def __init__(self, body: Callable[[Constants, Arrays], Outputs], *, scalar: bool = False) -> None:
        self.body, self.scalar = body, scalar
        self.run: Callable[[Constants, Arrays], Outputs] = jax.jit(self._run)
        self.forward = lru_cache(CACHE_SIZE)(self._forward)
        self.vjp = lru_cache(CACHE_SIZE)(self._vjp)
        self.jvp = lru_cache(CACHE_SIZE)(self._jvp)
        self.vmap = lru_cache(CACHE_SIZE)(self._vmap)

    def _run(self, constants: Constants, arrays: Arrays) -> Outputs:
        smooth, rest, opaque, meta = self.body(constants, arrays)
        owned = own(smooth + rest, arrays)
        return Outputs(owned[: len(smooth)], owned[len(smooth) :], opaque, meta)

    def _partial(self, constants: Constants, arrays: Arrays, mask: Mask) -> Callable[..., tuple[Arrays, Outputs]]:
        """The smooth outputs as a function of the inputs in ``mask``; the other outputs as auxiliary."""

        def function(*chosen: jax.Array) -> tuple[Arrays, Outputs]:
            out = self.body(constants, replace(arrays, mask, chosen))
            return out.smooth, out._replace(smooth=())

        return function

    def _forward(self, mask: Mask) -> Callable[[Constants, Arrays], Forward]:
        """:attr:`run` with what the backward for the inputs in ``mask`` needs."""
        return forward(self._partial, mask, self.scalar)

    def _vjp(self, mask: Mask, present: Mask) -> Flat:
        """``(arrays, cotangents) -> gradients`` of the inputs in ``mask``; cotangents not ``present`` are 0."""

        def body(constants: Constants, operands: Arrays) -> Outputs:
            arrays, cotangents = operands[: len(mask)], operands[len(mask) :]
            function = self._partial(constants, arrays, mask)
            out, pullback, _ = jax.vjp(function, *select(arrays, mask), has_aux=True)
            return Outputs(pull(pullback, out, present, cotangents), (), (), None)

        return Flat(body)

    def _jvp(self, mask: Mask) -> Flat:
        """``(arrays, tangents) -> tangents of the smooth outputs``; the inputs in ``mask`` have a tangent."""

        def body(constants: Constants, operands: Arrays) -> Outputs:
            arrays, tangents = operands[: len(mask)], operands[len(mask) :]
            function = self._partial(constants, arrays, mask)
            _, out, _ = jax.jvp(function, select(arrays, mask), tangents, has_aux=True)
            return Outputs(out, (), (), None)

        return Flat(body)

    def _vmap(self, in_axes: tuple[int | None, ...], size: int) -> Flat:
        """Batched along ``in_axes``; every output has the batch axis first."""
        return Flat(jax.vmap(self.body, in_axes=(None, in_axes), axis_size=size))
