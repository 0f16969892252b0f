"""Requests of a coordinator to every owner, as public documents."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.joint import size_of
from ..algorithms.one_shot import OneShot
from ..algorithms.program import LocalProgram
from ..errors import ModelError, RefusedError
from ..model.declaration import Declaration
from ..plan.agent_plan import AgentPlan
from ..plan.terms import Terms
from ..sensitivity.release_once import Publication
from . import wire
from .message_checks import MOST_SUMMED
from .messages import Line, Offer
from .records import REVISIONS, obstacle, sums_in_secret
from .wellformed import require_small, require_well_formed

# Fields of an offer that differ between agents. Lines show them to all participants; every other
# field, also one that is added to `Offer` later, belongs to the common document.
_OWN = ("agent", "place", "mechanism", "share", "program", "request", "split")


def offers_of(plan: Terms, run: str) -> tuple[Offer, ...]:
    """Return a plan's offers to the owners, one per agent in the order of the agents.

    Parameters
    ----------
    plan : Terms
    run : str
        Name of this run.

    Raises
    ------
    ModelError
        If the plan cannot be run between owners.
    RefusedError
        With code "large", if an array of the plan has more entries than owners accept.
    """
    _require_possible(plan)
    programs = [wire.portable(local) for local in plan.program.agents]
    parts = tuple(
        (local.name, _digest(agent, local))
        for agent, local in zip(plan.agents, programs, strict=True)
    )
    deltas = [agent.price.delta for agent in plan.agents if agent.price is not None]
    offers = tuple(
        Offer(
            run=run,
            agent=agent.name,
            place=k,
            plan=plan.fingerprint,
            algorithm=plan.algorithm,
            revision=REVISIONS[type(plan.algorithm)],
            mechanism=agent.noise and agent.noise.mechanism,
            rounds=plan.rounds,
            release=plan.release,
            observer="everyone",  # plans for other observers are refused above
            delta=max(deltas, default=0.0),
            share=agent.share,
            parts=parts,
            lines=(),
            program=program,
            request=agent.request,
            split=agent.noise and agent.noise.split,
        )
        for k, (agent, program) in enumerate(zip(plan.agents, programs, strict=True))
    )
    if not sums_in_secret(plan.algorithm):
        return offers
    lines = tuple(map(line_of, offers))
    return tuple(replace(offer, lines=lines) for offer in offers)


def line_of(offer: Offer) -> Line:
    """Return the public terms of an offer's agent in secure aggregation."""
    request, program = offer.request, offer.parts[offer.place][1]
    return Line(
        agent=offer.agent,
        program=program,
        share=offer.share,
        mechanism=offer.mechanism,
        multiplier=request.multiplier,
        once="" if request.once is None else wire.digest((request.once, request.estimates)),
        split=offer.split,
    )


def document_of(offer: Offer) -> str:
    """Return the digest of the terms that an offer shares with all other offers of its run."""
    names = (entry.name for entry in fields(Offer) if entry.name not in _OWN)
    return wire.digest(tuple((name, getattr(offer, name)) for name in names))


def _require_possible(plan: Terms) -> None:
    name = plan.algorithm.called
    why = obstacle(plan.algorithm, plan.observer)
    if why:
        raise ModelError(
            f"{name} cannot be run between owners: {why}. Use dp.LinearizedADMM(), "
            "dp.FederatedGradient() or dp.OneShot(), with observer='everyone'."
        )
    count = size_of(plan.program)
    if isinstance(plan.algorithm, (OneShot, FederatedGradient)) and count > MOST_SUMMED:
        raise RefusedError(
            "large",
            f"{name} sums {count} components over all agents, but owners take part in sums of at "
            f"most {MOST_SUMMED}. Use dp.LinearizedADMM(), which exchanges shared variables "
            "alone. Or run with all agents in one place: plan.run().",
        )
    _require_owners(plan.problem)
    for agent in plan.agents:
        local = agent.program
        if local.asserted is not None:
            raise ModelError(
                f"Agent '{agent.name}' has an asserted sensitivity. Leave out dp.Agent(..., "
                "sensitivity=...), or clip its records by clip_norm=. The agent's owner could not "
                "check the assertion."
            )
        if local.limits:
            raise ModelError(
                f"Agent '{agent.name}' has private data in its constraints. Run the plan with "
                "agents in one place, plan.run(), or move such constraints to recourse=. Their "
                "margins follow from the whole problem, which no owner sees."
            )
        if local.form.private and agent.noise is None:
            raise ModelError(
                f"The plan has no noise for agent '{agent.name}'. Plan with epsilon= and delta=. "
                "No owner takes part in a run without noise."
            )
        if any(expectation is not None for expectation in agent.expected):
            raise ModelError(
                f"prior= has values for data of agent '{agent.name}'. Plan without prior=. Priors "
                "cannot be sent to owners yet."
            )
        statistic = agent.publication
        if isinstance(statistic, Publication) and statistic.kind == "shaped data":
            raise ModelError(  # only next to private data in constraints
                f"Agent '{agent.name}' releases its data with shaped noise, which a run between "
                "owners does not support. Run it with all agents in one place, plan.run(), or plan "
                "with release='each_step'."
            )


def _digest(agent: AgentPlan, program: LocalProgram) -> str:
    """Return a program's digest, after checking that an owner would accept the program."""
    try:
        require_well_formed(program)
        once = agent.request.once
        if once is not None and once.encode is not None:
            require_small(math.prod(once.encode.shape), "entries of a statistic")
        return wire.digest(program)
    except RefusedError as error:
        raise RefusedError(
            error.code,
            f"Agent '{program.name}' cannot take part between owners ({error.code}). {error} "
            "Split its data over several agents, or run with agents in one place: plan.run().",
        ) from None


def _require_owners(problem: Declaration) -> None:
    """Refuse a problem with an agent that dpcvx has added for slacks, since no owner can be it."""
    slacks = {slack.id: slack for slack in problem.slacks}
    for name, agent in problem.named.items():
        held = [piece.variable for piece in agent.layout.pieces if piece.variable in slacks]
        if held and len(held) == len(agent.layout.pieces):
            shape = slacks[held[0]].shape
            size = f"{shape[0] if len(shape) == 1 else shape}" if shape else ""
            raise ModelError(
                f"coupling= has an inequality, whose slack is held by '{name}', an agent that "
                "dpcvx adds. Let an agent of yours hold the slack: write slack = "
                f"cp.Variable({size}), slack >= 0 among the constraints of one dp.Agent, and a + "
                "slack == b in coupling= in place of a <= b. No owner can be the added agent."
            )
