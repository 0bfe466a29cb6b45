"""The transforms of torch.func that need something around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ._core import jaxify_program
from ._frameworks import Function


def in_forward_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which uses forward mode, without the warning that torch gives itself when that is first used."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        jaxify_program._load_forward_formulas()
        return function(*args, **kwargs)

    return run


def jacfwd(function: Function, **options: Any) -> Function:
    return in_forward_mode(torch.func.jacfwd(function, **options))


def hessian(function: Function, **options: Any) -> Function:
    return in_forward_mode(torch.func.hessian(function, **options))
