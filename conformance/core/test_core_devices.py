"""Devices: several CPU devices stand for several of anything. Each test asks one process with eight of them."""

import json
import os
import subprocess
import sys

import pytest
from tjtest.subject import subject

tj_core = subject("tj_core")

PROGRAM = f"""
import json
import jax, jax.numpy as jnp, numpy as np, torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
import {tj_core.__name__} as core

t2j, j2t, shares = core.torch_to_jax, core.jax_to_torch, core.shares_memory
first, *_, last = devices = jax.devices()
mesh = Mesh(np.array(devices), ("data",))
tensor = torch.arange(64.)
spread, same = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


def error(function):
    try:
        function()
    except core.TJError as e:
        return [type(e).__name__, str(e)]
    return None


def where(array):
    return sorted(d.id for d in array.devices())


found = {{
    "default": where(t2j(tensor)),
    "asked": where(t2j(tensor, device=last)),
    "asked shares": shares(tensor, t2j(tensor, device=last)),
    "asked without copy": where(t2j(tensor, device=last, copy=False)),
    "asked with copy": shares(tensor, t2j(tensor, device=last, copy=True)),
    "single sharding": where(t2j(tensor, device=SingleDeviceSharding(last))),
    "sharding": [where(t2j(tensor, device=spread)), t2j(tensor, device=spread).sharding == spread],
    "sharding values": t2j(tensor, device=spread).tolist() == tensor.tolist(),
    "sharding without copy": error(lambda: t2j(tensor, device=spread, copy=False)),
    "sharding intact": (lambda a: (tensor.clone(), tensor.zero_(), a.tolist(), tensor.copy_(torch.arange(64.)))[2])(
        t2j(tensor, device=spread)) == list(range(64)),
    "back from the last": j2t(jax.device_put(jnp.arange(64.), last)).tolist() == tensor.tolist(),
    "back to the last": where(t2j(j2t(jax.device_put(jnp.arange(64.), last)), device=last)),
    "replicated": j2t(jax.device_put(jnp.arange(64.), same)).tolist() == tensor.tolist(),
    "replicated in a tree": j2t([jax.device_put(jnp.arange(64.), same)])[0].tolist() == tensor.tolist(),
    "sharded": error(lambda: j2t(jax.device_put(jnp.arange(64.), spread))),
    "sharded in a tree": error(lambda: j2t([jax.device_put(jnp.arange(64.), spread)])),
    "one-device mesh": j2t(jax.device_put(jnp.arange(4.), NamedSharding(Mesh(np.array([last]), "x"), P("x")))).tolist(),
    "computed on the last": where(t2j(tensor, device=last) + 1),
}}
array = jax.device_put(jnp.arange(64.), spread)
found["a shard is shared"] = shares(j2t(array.addressable_shards[3].data), array)
found["by name"] = where(t2j(tensor, device="cpu"))
found["by torch device"] = where(t2j(tensor, device=torch.device("cpu")))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_cpu_tensor_arrives_on_the_first_device_or_on_the_one_asked_for(found):
    assert found["default"] == [0]
    assert found["by name"] == found["by torch device"] == [0]
    assert found["asked"] == found["single sharding"] == found["asked without copy"] == [7]
    assert found["computed on the last"] == [7]


def test_any_cpu_device_shares_the_memory_unless_told_not_to(found):
    assert found["asked shares"]
    assert not found["asked with copy"]


def test_a_sharding_spreads_the_values_and_has_read_them_when_the_call_returns(found):
    assert found["sharding"] == [list(range(8)), True]
    assert found["sharding values"]
    assert found["sharding intact"]
    assert found["sharding without copy"][0] == "SharingError"


def test_an_array_comes_back_from_any_device_and_returns_to_it(found):
    assert found["back from the last"]
    assert found["back to the last"] == [7]
    assert found["one-device mesh"] == [0, 1, 2, 3]


def test_a_replicated_array_gives_its_local_shard(found):
    assert found["replicated"]
    assert found["replicated in a tree"]


@pytest.mark.parametrize("case", ["sharded", "sharded in a tree"])
def test_a_sharded_array_is_refused_and_the_gather_named(found, case):
    name, message = found[case]
    assert name == "UnsupportedKindError"
    assert "8 devices" in message
    assert "jax.device_put(array, jax.local_devices()[0])" in message


def test_a_shard_may_be_shared(found):
    assert found["a shard is shared"]
