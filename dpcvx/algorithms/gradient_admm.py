r"""Noisy gradient ADMM, one user per iteration (Chan, Xie and Zhao, Algorithms 1 and 4).

.. math::
    y &\leftarrow \operatorname{argmin}_y\; g(y) - \langle \lambda, B y \rangle
        + \tfrac\beta2 \|A x + B y - c\|^2 \\
    \lambda &\leftarrow \lambda - \beta (A x + B y - c) \\
    x &\leftarrow (I + \eta \beta A'A)^{-1}
        (x - \eta [\nabla f_t(x) + A'(\beta (B y - c) - \lambda)]) + N(0, \sigma^2 I)

for ``minimize f(x) + g(y)`` subject to ``A x + B y = c``. Here f is the sum of the users'
objectives, and :math:`f_t` is the objective of the user of iteration t, times the number of users.
The user adds the noise to the mapped gradient before it is released. The noise is scaled to the
sensitivity of the mapped gradient: :math:`1 / (1 + \eta \beta s^2)` of the gradient's sensitivity,
if A is square with the least singular value s. A has the form of Remark 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._arguments import FLAG, POSITIVE, choice, one_of, optional
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from ..model.curvature import convex, smoothness, strong_convexity
from ..model.matrices import SLACK, round_down
from ..privacy.last_iterate import ORDERS, LastIterate, Order, Secrecy
from ..privacy.two_block import TwoBlock, step_interval
from ..sensitivity.queries.gradients import GradientStep
from ..solvers.conic import Outcome
from ..solvers.steps import Contraction
from .base import Answer, Coins, HiddenIterates, Local, Oracle, Output, Requirements, Residuals
from .blocks import TwoBlocks, blocks_of, eliminated
from .facts import PublicFacts
from .program import LocalProgram, Program

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Turn:
    """Message that requests the x step of a round from the user of this round."""

    x: Array  # shape (n,)
    slope: Array  # shape (n,); ``A'(beta (B y - c) - lam)``
    users: int  # number of users, the factor on one user's gradient
    inverse: Contraction  # ``v -> (I + eta beta A'A)^-1 v``
    outcome: Outcome  # outcome of the y step


@dataclass(frozen=True, eq=False)
class GradientADMMServer:
    """State of the server: the iterates, their averages, and the arrays of the y step.

    Attributes
    ----------
    blocks : TwoBlocks
    x, y, lam : ndarray
        Iterates x and y, and the multipliers of the coupling.
    order : tuple of int
        Positions of the users by iteration; it is repeated after its end.
    turns : int
        Number of iterations so far.
    mean_x, mean_y : ndarray
        Averages of x and y over the iterations.
    primal, dual, mismatch : float
        Residuals of the last iteration.
    """

    blocks: TwoBlocks
    x: Array
    y: Array
    lam: Array
    order: tuple[int, ...]
    turns: int
    mean_x: Array
    mean_y: Array
    primal: float = math.nan
    dual: float = math.nan
    mismatch: float = math.nan


@frameless
@dataclass(frozen=True)
class GradientADMM(HiddenIterates[GradientADMMServer, Outcome]):
    """Noisy gradient ADMM: one user makes a step in each round.

    Users are the agents with private data. All of them share the variables x, a public agent has
    the variables y, and ``coupling=`` states the equations between x and y. The noise is added to
    x.

    Parameters
    ----------
    penalty : float, optional
        The paper's beta, the penalty of the coupling. If omitted, 0.5 / step for a coupling matrix
        of norm 1.
    step : float or "contraction", optional
        The paper's eta, the step size. If omitted, 1 / smoothness, and shorter with noise.
        "contraction" is the middle of the paper's interval (23). By the paper's proof, iterations
        then contract, and the privacy loss against an observer of the last iterate decays
        geometrically. For other steps, plans search for a certificate that proves this. Step and
        smoothness refer to a user's objective times the number of users.
    smoothness : float, optional
        Largest smoothness constant of a user's objective, for all admissible data. If omitted, it
        is derived from the model, which needs public curvature or records of bounded norm.
    strong_convexity : float, optional
        Smallest modulus of strong convexity of a user's objective, for all admissible data; the
        modulus of the quadratic terms if omitted.
    order : {"fixed", "permutation", "stopping", "sampling"}
        Order in which users make steps. "fixed" is the order of the agents. "permutation" is one
        random order for all passes. "stopping" is the order of the agents, in one pass that ends at
        a random round of its second half. "sampling" draws the user of each round independently.
        Random orders are for ``plan(..., observer="last_iterate")``: every user then has the same
        guarantee.
    draws : {"known", "secret"}
        With ``order="sampling"``, whether the drawn users may become "known" after the run, or stay
        "secret" forever. Secret draws need much less noise if every user has one record or few.
        Then nobody may log, bill or disclose which user was drawn. With ``plan(...,
        observer="iterates")``, iterates may be seen, but not which user computed each of them.
    x_first : bool
        Whether the first step updates x, as in the paper's Algorithm 4 and its utility Theorem 9.1.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    penalty: float | None = None
    step: float | Literal["contraction"] | None = None
    smoothness: float | None = None
    strong_convexity: float | None = None
    order: Order = "fixed"
    x_first: bool = False
    returned: Output | None = None
    draws: Secrecy = field(default="known", metadata={"later": True})

    def __post_init__(self) -> None:
        self.check_fields(
            penalty=optional(POSITIVE),
            smoothness=optional(POSITIVE),
            strong_convexity=optional(POSITIVE),
            order=choice(*ORDERS),
            x_first=FLAG,
            draws=choice("known", "secret"),
        )
        if self.secret_draws and self.order != "sampling":
            raise ModelError(
                f"dp.GradientADMM(order='{self.order}', draws='secret') draws no user at random "
                "in each round. Write order='sampling', draws='secret', or leave out draws=."
            )
        if not one_of(self.step, "contraction"):
            self.check_fields(step=optional(POSITIVE))

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: convex objectives, `coupling=`, a release per round."""
        return Requirements(
            convex=True,
            exact=False,
            releases=1,
            queries=(GradientStep,),
            coupled=True,
            in_turn=True,
            proximal="public",
        )

    @property
    def needs_last_iterate(self) -> bool:
        """Return whether the order is random: the accounting then needs unreleased iterates."""
        return self.order != "fixed"

    @property
    def secret_draws(self) -> bool:
        """Return whether it stays secret which user makes the step of each round."""
        return self.draws == "secret"

    def coupling(self, program: Program) -> str:
        """Return a line for ``print(plan)`` on equations that the method eliminates."""
        rows, written = eliminated(program), program.coupling
        assert written is not None
        count, size = len(written.right), len(rows.c)
        alone, others = len(rows.c_alone), rows.A.shape[1] - size
        text = (
            f"{count} {'equality' if count == 1 else 'equalities'} of x and y, solved for "
            f"{size} {'entry' if size == 1 else 'entries'} of x"
        )
        text += f" given the other {others}" if others else ""
        text += f"; {alone} without x constrain y alone" if alone else ""
        dropped = count - size - alone
        return text + (f"; {dropped} follow from the others and are dropped" if dropped else "")

    def releases(self, rounds: int, program: Program) -> int:
        """Return the number of x steps of the first user; no other user takes more."""
        return -(-rounds // len(blocks_of(program)[0]))

    def propose(self, facts: PublicFacts) -> GradientADMM:
        """Return the method with omitted smoothness, penalty and step size chosen.

        Refuse problems whose variables do not form the blocks x of the users and y of one public
        agent.
        """
        program = facts.program
        users, _ = blocks_of(program)
        rows = eliminated(program)
        nu, eta = self.smoothness, self.step
        if nu is None and (eta is None or eta == "contraction"):
            nu = max(_smoothness(program.agents[k]) for k in users)
        beta, output, norm = self.penalty, self.returned, float(np.linalg.norm(rows.A, 2))
        if eta == "contraction":
            beta = self._balanced(program, norm) if beta is None else beta
            eta = replace(self, penalty=beta)._contracting(program, nu or 0.0)
        if eta is None:
            # The gradient of one user stands for the gradient of all users.
            turns = facts.in_turn(users)
            if not nu:
                turns.require_scale()
            largest = 1.0 / (len(users) * nu) if nu else turns.longest() or 1.0
            eta, output = turns.constant_step(largest, output)
        if beta is None:
            beta = 1 / (2 * eta * norm**2)
        return replace(self, penalty=beta, smoothness=nu or None, step=eta, returned=output)

    def _balanced(self, program: Program, norm: float) -> float:
        """Return a penalty near the convexity moduli, so that the paper's interval (23) is wide."""
        users, _ = blocks_of(program)
        least = min(len(users) * self._convexity(program), TwoBlocks(program, 1.0, 1.0).convexity)
        return (least or 1.0) / norm**2

    @property
    def _beta(self) -> float:
        assert self.penalty is not None  # `propose` has set it
        return self.penalty

    @property
    def _eta(self) -> float:
        assert isinstance(self.step, (int, float))  # `propose` has set it
        return self.step

    def _contracting(self, program: Program, nu: float) -> float:
        """Return the middle of the paper's interval (23): a step that makes iterations contract."""
        users, _ = blocks_of(program)
        blocks = TwoBlocks(program, self._beta, 1.0)
        mu = self._convexity(program)
        AB = float(np.linalg.norm(blocks.rows.A.T @ blocks.rows.B, 2))
        times = len(users)
        low, high = step_interval(times * nu, times * mu, blocks.convexity, self._beta, AB)
        if not (mu > 0 and blocks.convexity > 0 and blocks.exact and low < high):
            raise ModelError(
                "dp.GradientADMM(step='contraction') needs strongly convex objectives of the "
                f"users (modulus: {mu:.6g}). It also needs a strongly convex public agent whose y "
                f"step has a closed form (modulus: {blocks.convexity:.6g}). Add a multiple of "
                "cp.sum_squares to each objective, or leave out step=. Only then is the interval "
                "(23) of step sizes not empty."
            )
        return (low + high) / 2

    def _convexity(self, program: Program) -> float:
        """Return the smallest modulus of strong convexity of a user's objective."""
        users, _ = blocks_of(program)
        if self.strong_convexity is None:
            return min(strong_convexity(program.agents[k].form) for k in users)
        derived = [smoothness(program.agents[k].form) for k in users]
        least = min((nu for nu in [*derived, self.smoothness] if nu is not None), default=math.inf)
        if self.strong_convexity > least * SLACK:
            raise ModelError(
                f"dp.GradientADMM(strong_convexity={self.strong_convexity:g}) is above a user's "
                f"smoothness {least:g}. Leave out strong_convexity= to have it derived. No "
                "function is more strongly convex than it is smooth."
            )
        return self.strong_convexity

    def amplification(
        self,
        program: Program,
        sensitivities: Sequence[float],
        clipped: bool,
        rounds: int,
        *,
        visible: bool = False,
    ) -> LastIterate:
        """Return the constants of the last-iterate guarantee of `dpcvx.privacy.two_block`.

        They are for the users' objectives times the number of users.
        """
        users, _ = blocks_of(program)
        blocks = TwoBlocks(program, self._beta, self._eta)
        largest = max(sensitivities[k] for k in users)
        _require_one_bound(largest)
        if visible:
            return self._last(program, blocks, None, rounds, largest)
        _require_amplified(program, blocks, clipped)
        derived = [smoothness(program.agents[k].form) for k in users]
        nu = self._certified_smoothness([program.agents[k].name for k in users], derived)
        convexity = min(strong_convexity(program.agents[k].form) for k in users)
        mu = self._convexity(program)
        times = len(users)
        block = TwoBlock.of(
            blocks.rows.A,
            blocks.rows.B,
            nu=times * nu * SLACK,
            mu=times * min(max(round_down(mu, nu), 0.0), nu),
            mu_g=blocks.convexity,
            beta=self._beta,
            eta=self._eta,
        )
        last = self._last(program, blocks, block, rounds, largest)
        return replace(last, asserted=None in derived or mu > convexity)

    def _last(
        self,
        program: Program,
        blocks: TwoBlocks,
        block: TwoBlock | None,
        rounds: int,
        largest: float,
    ) -> LastIterate:
        times = len(blocks.users)
        return LastIterate(
            block=block,
            users=tuple(program.agents[k].name for k in blocks.users),
            rounds=rounds,
            order=self.order,
            sensitivity=times * largest,
            level=self._eta * times * largest * blocks.inverse.norm2,
            asserted=False,
        )

    def _certified_smoothness(self, names: Sequence[str], derived: Sequence[float | None]) -> float:
        """Return a smoothness constant for all users' objectives: derived, or user-supplied."""
        largest = max((nu for nu in derived if nu is not None), default=0.0)
        unknown = [name for name, nu in zip(names, derived, strict=True) if nu is None]
        if unknown and self.smoothness is None:
            raise PrivacyError(
                "No smoothness constant can be derived for the objective of agent "
                f"'{unknown[0]}': it is nonsmooth, or its curvature depends on private data. "
                "Write dp.GradientADMM(smoothness=...) with a bound for all admissible data, "
                "which the guarantee will call asserted. observer='last_iterate' needs the bound "
                "to prove that steps do not move neighboring runs farther apart."
            )
        if unknown:
            return max(largest, self.smoothness or 0.0)
        return largest or 1e-300

    def start_server(self, program: Program) -> GradientADMMServer:
        """Return the server's state: x and y at the public initial points, zero multipliers."""
        blocks = TwoBlocks(program, self._beta, self._eta)
        x, y = program.agents[blocks.users[0]].start, program.agents[blocks.public].start
        lam = np.zeros(blocks.rows.c.size)
        order = tuple(range(len(blocks.users)))
        return GradientADMMServer(blocks, x, y, lam, order, 0, np.zeros_like(x), np.zeros_like(y))

    def drawn(
        self, server: GradientADMMServer, rounds: int, coins: Coins
    ) -> tuple[GradientADMMServer, int]:
        """Draw the order of users; return the server's state and the last round's number."""
        users = len(server.order)
        if self.order == "permutation":
            return replace(server, order=tuple(coins.shuffled(users))), rounds
        if self.order == "sampling":
            return replace(server, order=tuple(coins.below(users) for _ in range(rounds))), rounds
        if self.order == "stopping":
            return server, users // 2 + 1 + coins.below(users - users // 2)
        return server, rounds

    def start_agent(self, local: Local) -> Outcome:
        """Return the agent's state, the outcome SOLVED: users keep no iterates between rounds."""
        return Outcome.SOLVED

    def send(
        self, server: GradientADMMServer, t: int, k: int
    ) -> tuple[GradientADMMServer, list[Turn | None]]:
        """Make the y step, update the multipliers, and send x to the user of this round."""
        blocks, beta, x = server.blocks, self._beta, server.x
        A, B, c = blocks.rows.A, blocks.rows.B, blocks.rows.c
        y, lam, outcome = server.y, server.lam, Outcome.SOLVED
        gap = A @ x + B @ y - c
        if not (self.x_first and t == 1):
            y, outcome = blocks.y(x, lam, y)
            gap = A @ x + B @ y - c
            lam = lam - beta * gap
        slope = A.T @ (beta * (B @ y - c) - lam)
        users = len(blocks.users)
        messages: list[Turn | None] = [None] * (users + 1)
        turn = server.order[(t - 1) % len(server.order)]
        messages[blocks.users[turn]] = Turn(x, slope, users, blocks.inverse, outcome)
        state = replace(
            server,
            y=y,
            lam=lam,
            primal=float(np.linalg.norm(gap)),
            mismatch=float(np.abs(gap).max()),
        )
        return state, messages

    def act(
        self, local: Local, state: Outcome, t: int, k: int, message: Turn, oracle: Oracle
    ) -> tuple[Outcome, Array]:
        """Make the noisy x step of the module's equations with the user's data, and release x."""
        x, eta, inverse = message.x, self._eta, message.inverse
        center = inverse(x - eta * message.slope)
        # f_t is the user's objective times the number of users.
        return message.outcome, oracle.release(
            GradientStep(x, center, eta * message.users, inverse)
        )

    def receive(
        self, server: GradientADMMServer, t: int, k: int, replies: Sequence[Array | None]
    ) -> GradientADMMServer:
        """Take the user's new x, and compute the dual residual."""
        x = next(reply for reply in replies if reply is not None)
        n = server.turns + 1
        rows, old = server.blocks.rows, server.x
        # Solve the equation of the x step for the gradient at the old x minus A' lambda (Lemma
        # 2.2).
        pull = self._beta * rows.A.T @ (rows.A @ x + rows.B @ server.y - rows.c)
        slope = (old - x) / self._eta - pull
        return replace(
            server,
            x=x,
            turns=n,
            dual=float(np.linalg.norm(slope)),
            mean_x=server.mean_x + (x - server.mean_x) / n,
            mean_y=server.mean_y + (server.y - server.mean_y) / n,
        )

    def residuals(self, server: GradientADMMServer) -> Residuals:
        """Return the coupling's violation before the x step, and the Lagrangian's gradient in x."""
        return Residuals(server.primal, server.dual, server.mismatch, self._beta)

    def conclude(self, server: GradientADMMServer) -> list[Answer]:
        """Return the last and the averaged x for every user, and y after one more y step."""
        y, _ = server.blocks.y(server.x, server.lam, server.y)
        return self._answers(server, Answer(server.x, server.mean_x), Answer(y, server.mean_y))

    def conclude_hidden(self, server: GradientADMMServer) -> list[Answer]:
        """Return the last x for every user, and for the public agent a y computed from this x.

        If the y step has a closed form, this y satisfies the coupling as closely as possible.
        """
        blocks, x = server.blocks, server.x
        y = blocks.feasible(x) if blocks.exact else blocks.y(x, 0 * server.lam, server.y)[0]
        return self._answers(server, Answer(x, x), Answer(y, y))

    def _answers(self, server: GradientADMMServer, user: Answer, public: Answer) -> list[Answer]:
        answers = [user] * len(server.blocks.users)
        answers.insert(server.blocks.public, public)
        return answers

    def outcome(self, state: Outcome) -> Outcome:
        """Return the outcome of the y step before the user's last step."""
        return state

    def __str__(self) -> str:
        named = {None: "chosen by the plan", "contraction": "for contraction"}
        eta = named.get(self.step) or f"{self._eta:.3g}"
        penalty = "" if self.penalty is None else f", penalty = {self.penalty:.3g}"
        secret = ", secret draws" if self.secret_draws else ""
        turns = "" if self.order == "fixed" else f" (random {self.order}{secret})"
        first = ", x first" if self.x_first else ""
        return f"gradient ADMM, one user per round{turns}{first}{penalty}, step = {eta}"


def _smoothness(local: LocalProgram) -> float:
    nu = smoothness(local.form)
    if nu is None:
        raise ModelError(
            f"No smoothness constant can be derived for the objective of agent '{local.name}': it "
            "is nonsmooth, or its curvature depends on private data. Write "
            "dp.GradientADMM(smoothness=...) with a bound for all admissible data, or step=... "
            "The step size of dp.GradientADMM follows from the constant."
        )
    return nu


def _require_amplified(program: Program, blocks: TwoBlocks, clipped: bool) -> None:
    """Refuse problems whose steps may move two runs on neighboring data farther apart."""
    if not blocks.exact:
        raise PrivacyError(
            f"The y step of agent '{program.agents[blocks.public].name}' has no closed form and "
            "is solved to the solver's accuracy. Write the agent's objective as a sum over single "
            "entries of y (l1, squares, bounds), with one entry of y in each equality of "
            "coupling=. Or write observer='everyone'. Such a step may move neighboring runs "
            "farther apart, so observer='last_iterate' has no proved guarantee."
        )
    if clipped:
        raise PrivacyError(
            "The clipped gradients of records with several scores each are not the gradients of "
            "one convex function. Use losses of one score A @ x per record, or bound the data so "
            "that the sensitivity is finite without clip_norm=. Or write observer='everyone'. "
            "Steps along such gradients may move neighboring runs farther apart, so "
            "observer='last_iterate' has no proved guarantee."
        )
    for k in blocks.users:
        if not convex(program.agents[k].form):
            raise PrivacyError(
                f"The objective of agent '{program.agents[k].name}' is not convex for all "
                "admissible data. Look for a quadratic with a negative denominator or eigenvalue, "
                "or write observer='everyone'. A step may move neighboring runs farther apart, so "
                "observer='last_iterate' has no proved guarantee."
            )


def _require_one_bound(largest: float) -> None:
    """Refuse a largest gradient sensitivity that is zero or infinite."""
    if largest == 0:
        raise PrivacyError(
            "No user's gradient depends on private data, so there is no privacy loss to reduce. "
            "Write observer='everyone'."
        )
    if math.isinf(largest):
        raise PrivacyError(
            "The effect of one change of the data on the gradient has a bound that differs from "
            "point to point. Choose a loss with bounded slopes, or data that enter linearly, or "
            "write observer='everyone'. observer='last_iterate' needs one bound for all x."
        )
