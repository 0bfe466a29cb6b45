"""Containers survive a round trip exactly: structure, types, key order, None, and what was shared inside."""

import dataclasses
import sys
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_equal

tj_core = subject("tj_core")
t2j, j2t, shares = tj_core.torch_to_jax, tj_core.jax_to_torch, tj_core.shares_memory

Point = namedtuple("Point", ["x", "y"])


class Batch(NamedTuple):
    inputs: Any
    labels: Any = None


@dataclasses.dataclass
class Inner:
    weight: Any
    name: str = "inner"


@dataclasses.dataclass(frozen=True)
class Frozen:
    inner: Inner
    steps: int = 3


@dataclasses.dataclass
class Derived:
    a: Any
    scale: dataclasses.InitVar[float]
    b: Any = dataclasses.field(init=False)

    def __post_init__(self, scale):
        self.b = self.a * scale
        self.extra = "not a field"


@dataclasses.dataclass
class Half:
    given: Any
    later: Any = dataclasses.field(init=False)


@jax.tree_util.register_pytree_node_class
class OfJax:
    def __init__(self, weight, tag):
        self.weight, self.tag = weight, tag

    def tree_flatten(self):
        return (self.weight,), self.tag

    @classmethod
    def tree_unflatten(cls, tag, children):
        return cls(*children, tag)


class OfTorch:
    def __init__(self, weight, tag):
        self.weight, self.tag = weight, tag


torch.utils._pytree.register_pytree_node(OfTorch, lambda v: ([v.weight], v.tag), lambda c, tag: OfTorch(*c, tag))


@dataclasses.dataclass
class ModelOutput(OrderedDict):
    """As Hugging Face makes them: a dict of the fields that are not None, registered with torch by its class."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                super().__setitem__(field.name, getattr(self, field.name))


torch.utils._pytree.register_pytree_node(
    ModelOutput,
    lambda v: (list(v.values()), list(v)),
    lambda values, keys: ModelOutput(**dict(zip(keys, values, strict=True))),
)


@dataclasses.dataclass(frozen=True)
class Linear:
    """As equinox makes modules: a frozen dataclass that is a pytree of its fields, some of which are static."""

    weight: Any
    size: int = 3

    def __call__(self, x):
        return self.weight * x


jax.tree_util.register_dataclass(Linear, data_fields=["weight"], meta_fields=["size"])


def one() -> torch.Tensor:
    return torch.arange(16, dtype=torch.float32)


def test_builtin_containers_keep_type_order_and_none():
    tree = {
        3: [one(), (one(), None)],
        "b": OrderedDict([("z", one()), ("a", 1)]),
        (1, 2): defaultdict(list, {"k": one()}),
        None: torch.Size([1, 2]),
        "point": Point(one(), "label"),
        "batch": Batch(one()),
    }
    back = j2t(there := t2j(tree))
    for got, leaf in ((there, jax.Array), (back, torch.Tensor)):
        assert list(got) == list(tree)
        assert type(got[3]) is list
        assert type(got[3][1]) is tuple
        assert got[3][1][1] is None
        assert type(got["b"]) is OrderedDict
        assert list(got["b"]) == ["z", "a"]
        assert type(got[1, 2]) is defaultdict
        assert got[1, 2].default_factory is list
        assert got[None] is tree[None]
        assert type(got["point"]) is Point
        assert got["point"].y == "label"
        assert type(got["batch"]) is Batch
        assert isinstance(got["batch"].inputs, leaf)
        assert got["batch"].labels is None
        assert isinstance(got[1, 2]["k"], leaf)
    assert shares(back[3][0], there[3][0])
    assert back[3][0].data_ptr() == tree[3][0].data_ptr()


def test_dataclasses_are_rebuilt_as_they_stood():
    frozen = t2j(Frozen(Inner(one()), 7))
    assert type(frozen) is Frozen
    assert frozen.steps == 7
    assert frozen.inner.name == "inner"
    assert_equal(frozen.inner.weight, one())
    source = Derived(one(), 2.0)
    derived = j2t(t2j(source))
    assert_equal(derived.b, one() * 2)
    assert derived.extra == "not a field"
    assert source.a.data_ptr() == derived.a.data_ptr()
    half = t2j(Half(one()))
    assert isinstance(half.given, jax.Array)
    assert not hasattr(half, "later")


def test_the_source_dataclass_is_not_touched():
    source = Inner(one())
    t2j(source)
    assert isinstance(source.weight, torch.Tensor)


@pytest.mark.parametrize("cls", [OfJax, OfTorch])
def test_classes_registered_with_either_framework_are_containers(cls):
    there = t2j([cls(one(), "tag")])
    assert type(there[0]) is cls
    assert there[0].tag == "tag"
    assert isinstance(there[0].weight, jax.Array)
    assert isinstance(j2t(there)[0].weight, torch.Tensor)


def test_a_class_registered_after_it_was_met_is_a_container_from_then_on():
    class Late:
        def __init__(self, x):
            self.x = x

    value = Late(one())
    assert t2j([value])[0] is value
    jax.tree_util.register_pytree_node(Late, lambda v: ((v.x,), None), lambda _, c: Late(*c))
    assert isinstance(t2j([value])[0].x, jax.Array)


def test_a_model_output_keeps_its_class_and_its_absent_fields():
    there = t2j(ModelOutput(logits=one()))
    assert type(there) is ModelOutput
    assert isinstance(there.logits, jax.Array)
    assert there.loss is None
    assert list(there) == ["logits"]
    assert isinstance(j2t(there)["logits"], torch.Tensor)


def test_a_module_that_is_a_callable_dataclass_and_a_pytree_is_a_container():
    there = j2t(Linear(jnp.ones(3), 5))
    assert type(there) is Linear
    assert there.size == 5
    assert isinstance(there.weight, torch.Tensor)
    assert_equal(t2j(there)(2.0), jnp.full(3, 2.0))


def test_torch_return_types_stay_what_they_are():
    there = t2j(torch.max(torch.ones(2, 3), 0))
    assert type(there) is torch.return_types.max
    assert isinstance(there.values, jax.Array)


def test_other_objects_pass_by_identity():
    class Unknown:
        pass

    objects = [Unknown(), "text", 3, 2.5, 1j, None, True, np.ones(2), np.float32(1), b"raw", torch.Size([2]), int, ...]
    for convert in (t2j, j2t):
        for got, sent in zip(convert(objects), objects, strict=True):
            assert got is sent
        assert convert(objects[0]) is objects[0]
    array, tensor = jnp.ones(2), torch.ones(2)
    assert t2j(array) is array
    assert j2t(tensor) is tensor


def test_python_scalars_keep_jax_weak_types():
    x = jnp.ones(2, dtype=jnp.bfloat16)
    assert (x * t2j({"s": 2.0})["s"]).dtype == jnp.bfloat16


def test_one_tensor_met_twice_is_one_array():
    tied = one()
    tree = t2j({"encoder": tied, "decoder": [tied, one()], "o": (OfJax(tied, 0),)})
    assert tree["encoder"] is tree["decoder"][0] is tree["o"][0].weight
    assert tree["decoder"][1] is not tree["encoder"]
    back = j2t(tree)
    assert back["encoder"] is back["decoder"][0]
    copied = t2j([tied, tied], copy=True)
    assert copied[0] is copied[1]
    assert not shares(tied, copied[0])


def test_children_made_anew_by_a_container_are_not_mixed_up():
    class Fresh:
        """Flattens to tensors that did not exist before and are dropped at once."""

        def __init__(self, number):
            self.number = number

    jax.tree_util.register_pytree_node(
        Fresh, lambda v: ((torch.full((16,), float(v.number)),), None), lambda _, c: ("fresh", *c)
    )
    for i, (_, array) in enumerate(t2j([Fresh(i) for i in range(100)])):
        assert array[0] == i


def test_copy_and_device_reach_every_leaf():
    tree = {"a": one(), "b": [one()]}
    cpu = jax.devices("cpu")[0]
    for got in (t2j(tree, copy=True), t2j(tree, copy=True, device=cpu), t2j(tree, copy=True, device="cpu")):
        assert not shares(tree["a"], got["a"])
        assert not shares(tree["b"][0], got["b"][0])
        assert got["b"][0].devices() == {cpu}
    arrays = t2j(tree)
    assert not shares(j2t(arrays, copy=True, device="cpu")["b"][0], arrays["b"][0])


def test_the_conversions_are_leaf_functions_for_jax_tree_map():
    tree = {"a": one(), "b": (one(), one())}
    there = jax.tree.map(t2j, tree)
    assert isinstance(there["b"][1], jax.Array)
    back = jax.tree.map(j2t, there)
    assert_equal(back["a"], one())


def test_a_tree_too_deep_is_a_clear_error():
    tree: Any = one()
    for _ in range(10_000):
        tree = [tree]
    for convert in (t2j, j2t):
        with pytest.raises(tj_core.TreeDepthError, match="nested too deeply"):
            convert(tree)
    while isinstance(tree, list):  # taken apart by hand: the interpreter's own recursion is not under test
        tree = tree[0]


def test_a_tree_within_the_limit_is_converted():
    depth = sys.getrecursionlimit() // 5
    tree: Any = one()
    for _ in range(depth):
        tree = {"child": tree}
    there = t2j(tree)
    for _ in range(depth):
        there = there["child"]
    assert_equal(there, one())


def test_a_container_of_itself_is_a_clear_error():
    loop: list[Any] = [one()]
    loop.append(loop)
    with pytest.raises(tj_core.TreeDepthError, match="contains itself"):
        t2j(loop)


def test_an_error_in_one_leaf_leaves_the_tree_as_it_was():
    tree = {"good": one(), "bad": torch.ones(2, device="meta")}
    with pytest.raises(tj_core.UnsupportedKindError):
        t2j(tree)
    assert isinstance(tree["good"], torch.Tensor)
