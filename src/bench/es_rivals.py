"""evosax's Open_ES on CartPole in jax: the rival of `samara bench es`.

    python es_rivals.py CORES SECONDS

Population 64, a network 4-16-16-2 with ReLU, argmax, episodes of up to 500 steps as a scan over a vmap of members, as
evosax's own examples do; CartPole's dynamics are written out here, without the bookkeeping of a library of
environments. Every generation is one compiled call: ask, episodes, tell. Two forms, the quicker counts: all members on
one jax device, and one device a core with a share of the members each. Steps that a member's scan makes after its
episode has ended count too. Prints {"rival", "steps_per_second", ...}, or {"reason"} where it is not installed. `make
rivals` installs it into .venv-rivals, whose Python this script hands over to.
"""

import json
import os
import sys
import time
from pathlib import Path

POPULATION, STEPS = 64, 500
SIZES = (4, 16, 16, 2)


def main():
    cores, seconds = int(sys.argv[1]), float(sys.argv[2])
    python = Path(sys.prefix).parent / ".venv-rivals" / "bin" / "python"
    if python.exists() and Path(sys.prefix).name != ".venv-rivals":
        os.execv(python, [str(python), *sys.argv])
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={cores}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        from importlib.metadata import version

        import jax
        import jax.numpy as jnp
        import optax
        from evosax.algorithms import Open_ES
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
    except ImportError as error:
        print(json.dumps({"reason": f"{error.name} is not installed: `make rivals` installs it"}))
        return

    def act(weights, observation):
        x = observation
        for i, (w, b) in enumerate(weights):
            x = x @ w + b
            x = jax.nn.relu(x) if i + 2 < len(SIZES) else x
        return jnp.argmax(x)

    def step(state, action):
        x, v, angle, rate = state
        force = jnp.where(action == 1, 10.0, -10.0)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * rate**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        forward = push - 0.05 * turn * cosine / 1.1
        return jnp.array([x + 0.02 * v, v + 0.02 * forward, angle + 0.02 * rate, rate + 0.02 * turn])

    def episode(weights, key):
        def body(carry, _):
            state, alive = carry
            state = step(state, act(weights, state))
            alive = alive & (jnp.abs(state[0]) < 2.4) & (jnp.abs(state[2]) < 0.2095)
            return (state, alive), alive

        start = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        _, alive = jax.lax.scan(body, (start, True), None, STEPS)
        return 1.0 + jnp.sum(alive)

    keys = jax.random.split(jax.random.key(0), len(SIZES))
    solution = [(0.1 * jax.random.normal(k, (n, m)), jnp.zeros(m)) for k, n, m in zip(keys, SIZES, SIZES[1:])]
    es = Open_ES(population_size=POPULATION, solution=solution, optimizer=optax.adam(0.05),
                 std_schedule=optax.constant_schedule(0.1))  # fmt: skip
    parameters = es.default_params

    def generation(shard):
        @jax.jit
        def one(state, key):
            ask, play, tell = jax.random.split(key, 3)
            members, state = es.ask(ask, state, parameters)
            starts = jax.random.split(play, POPULATION)
            if shard is not None:
                members = jax.lax.with_sharding_constraint(members, shard)
                starts = jax.lax.with_sharding_constraint(starts, shard)
            fitness = jax.vmap(episode)(members, starts)
            state, _ = es.tell(tell, members, -fitness, state, parameters)  # it minimises
            return state, fitness

        return one

    def measure(shard):
        one = generation(shard)
        key = jax.random.key(1)
        state = es.init(key, solution, parameters)
        for _ in range(3):  # the second call may compile again, for a state that a call has returned
            state, fitness = one(state, key)
        fitness.block_until_ready()
        start, generations, useful = time.perf_counter(), 0, 0.0
        while time.perf_counter() - start < seconds / 2 or generations < 3:
            key, draw = jax.random.split(key)
            state, fitness = one(state, draw)
            useful += float(fitness.sum())
            generations += 1
        elapsed = time.perf_counter() - start
        return generations * POPULATION * STEPS / elapsed, useful / elapsed, float(fitness.mean())

    forms = {"one device": measure(None)}
    if cores > 1 and POPULATION % cores == 0:
        mesh = Mesh(jax.devices(), "members")
        forms["a device per core"] = measure(NamedSharding(mesh, PartitionSpec("members")))
    best = max(forms, key=lambda name: forms[name][0])
    rate, useful, fitness = forms[best]
    print(json.dumps({"rival": f"evosax {version('evosax')} Open_ES, jax {jax.__version__}, {best}",
                      "steps_per_second": rate, "useful_steps_per_second": useful, "fitness_mean": fitness,
                      "forms": {name: row[0] for name, row in forms.items()}}))  # fmt: skip


main()
