"""Worker: disropt's ADMM, one MPI process per agent on a complete graph; for mpirun."""

import warnings

import numpy as np
from disropt.agents import Agent
from disropt.algorithms.admm import ADMM
from disropt.functions import AffineForm, Norm, QuadraticForm, Variable
from disropt.problems import Problem
from exchange import Trace, arguments, load
from mpi4py import MPI


def main() -> None:
    options = arguments()
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    inst = load(options.instance)
    world.Barrier()
    trace = Trace()
    A, b = inst.A[rank], inst.b[rank][:, None]
    n = A.shape[1]
    x = Variable(n)
    edge = inst.bound * np.ones((n, 1))
    limits = [x <= edge, x >= -edge]
    if inst.conic:
        inside = AffineForm(x, inst.B[rank].T, -inst.c[rank][:, None])
        limits.append(Norm(inside, order=2) <= float(inst.r[rank]))
    others = [k for k in range(world.Get_size()) if k != rank]
    agent = Agent(in_neighbors=others, out_neighbors=others)
    agent.set_problem(Problem(QuadraticForm(x, A.T @ A, -2 * A.T @ b), limits))
    zeros = {k: np.zeros((n, 1)) for k in range(world.Get_size())}
    method = ADMM(agent=agent, initial_lambda=zeros, initial_z=np.zeros((n, 1)), enable_log=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sequence = method.run(iterations=options.rounds, penalty=options.rho)[0]
    world.Barrier()
    ended = trace.now
    copies = world.gather(sequence[:, :, 0], root=0)
    if rank == 0:
        for t in range(options.rounds):
            trace.add(np.array([own[t] for own in copies]), ended * (t + 1) / options.rounds)
        trace.save(options.result, "disropt", "cvxpy", "mpich")


if __name__ == "__main__":
    main()
