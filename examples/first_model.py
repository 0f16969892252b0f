"""A first private model: two agents, one shared variable, one private vector.

North and South are the two ends of a power line. Each can generate power, and North has customers
whose consumption nobody else may learn. The two must agree on the flow between them. You know
cvxpy; the lines about privacy are explained where they stand. Run with

    python -m examples.first_model
"""

import cvxpy as cp
import numpy as np

import dpcvx as dp


def main() -> None:
    # What North's 24 customers use, in kW. In practice this comes from a file that only North can
    # read; dp.Private also takes a function that fetches it where the agent runs.
    usage = np.array([1.2, 0.4, 2.0, 0.9, 0.3, 1.1, 0.8, 1.5] * 3)

    # One shared variable: both agents use the same cvxpy object, and that is how the package knows
    # they have to agree on it. The generators are used by one agent each: they are never sent.
    flow = cp.Variable(name="flow")
    north_gen = cp.Variable(name="north_gen", nonneg=True)
    south_gen = cp.Variable(name="south_gen", nonneg=True)

    # A private vector is a cvxpy parameter whose values never enter cvxpy. The adjacency says what
    # has to stay hidden: here, any change of one customer's usage by up to 0.5 kW. Whoever sees
    # everything the agents send cannot tell two such data sets apart, up to epsilon and delta.
    load = dp.Private(usage, name="load", adjacency=dp.Within(0.5))

    # Here private data stand in the objective; the guide says where else they may. North's power
    # should match the total load: the mismatch is penalized. South prefers to generate little.
    north = dp.Agent(
        cp.Minimize(cp.square(north_gen + flow - cp.sum(load))),
        [north_gen <= 20, cp.abs(flow) <= 15],
        name="north",
    )
    south = dp.Agent(
        cp.Minimize(0.1 * cp.square(south_gen)),
        [south_gen == flow, south_gen <= 12],
        name="south",
    )
    problem = dp.Problem([north, south])

    # The plan chooses a method and its noise from what is public, and print(plan) says why. Here
    # the gradient depends linearly on the loads, so what North has to tell leaves once, with noise,
    # and the rest is computed from that. How strongly it reacts to one customer, and hence how much
    # noise makes it (epsilon, delta)-differentially private, is derived from the model above. No
    # private data was used so far.
    plan = problem.plan(epsilon=2.0, delta=1e-6)
    print(plan)

    # Now the data are used. The seed makes this example print the same numbers every time; whoever
    # knows it could subtract the noise, so the guarantee says "not for release". Leave it out in
    # earnest. This seed is a typical one: half of all seeds end within 0.14 kW of the optimum.
    result = plan.run(seed=4)
    print(result)
    print(f"flow agreed in private: {result.solution[flow].round(2)} kW")  # also in flow.value

    # For comparison only, and named accordingly: the solution that sees all data at once.
    central = dp.not_private.joint_problem(problem)
    central.solve()
    print(f"flow without privacy:   {np.asarray(flow.value).round(2)} kW")


if __name__ == "__main__":
    main()
