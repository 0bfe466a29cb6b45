"""The umbrella has every public name of its siblings, and adds none but the drop-in class."""

import pytest
from tjtest.subject import subject

SIBLINGS = ("tj_core", "tj_autograd", "tj_jaxify", "tj_func", "tj_flax")
OWN = {"WrappedJaxScalarFunction"}  # has_aux as in the package of the same name

umbrella = subject("torch_jax_interop")


@pytest.mark.parametrize("name", SIBLINGS)
def test_names_of_a_sibling_are_the_same_objects(name: str) -> None:
    sibling = subject(name)
    for public in sibling.__all__:
        if public not in OWN:
            assert getattr(umbrella, public) is getattr(sibling, public)


def test_there_is_nothing_else() -> None:
    assert set(umbrella.__all__) == {public for name in SIBLINGS for public in subject(name).__all__}


def test_the_drop_in_class_is_one_of_the_sibling() -> None:
    assert issubclass(umbrella.WrappedJaxScalarFunction, subject("tj_autograd").WrappedJaxScalarFunction)
