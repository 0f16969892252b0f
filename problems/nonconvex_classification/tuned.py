"""The results of the search: ``python -m examples.ou_nonconvex --full --tune`` prints these lines.

The comments are the mean gaps on the records of the search. Gaps are not private.
"""

from __future__ import annotations

from .methods import Choice

CHOICES: dict[tuple[str, float], Choice] = {
    ("DPP2", 0.1): Choice(0.003, 3, 1.0, 0.003, "average"),  # 2.37
    ("DPP2", 1): Choice(0.003, 3, 0.9, 0.003, "average"),  # 2.16
    ("DPP2", 10): Choice(0.03, 30, 1.0, 0.03, "average"),  # 1.67
    ("DPP2", 100): Choice(0.1, 100, 1.0, 0.1, "average"),  # 0.17
    ("DPP2", 1000): Choice(0.1, 100, 1.0, 1.0, "average"),  # 0.141
    ("DPP2", 100000): Choice(0.1, 100, 1.0, 0.1, "last"),  # 0.00699
    ("DPP2, damped", 0.1): Choice(0.003, 3, 0.97, 0.003, "average"),  # 2.34
    ("DPP2, damped", 1): Choice(0.003, 3, 0.9, 0.003, "average"),  # 2.16
    ("DPP2, damped", 10): Choice(0.03, 30, 1.0, 0.03, "average"),  # 1.64
    ("DPP2, damped", 100): Choice(0.1, 100, 1.0, 0.1, "average"),  # 0.195
    ("DPP2, damped", 1000): Choice(0.1, 100, 0.97, 0.1, "last"),  # 0.0245
    ("DPP2, damped", 100000): Choice(0.1, 100, 0.97, 0.1, "last"),  # 0.00403
    ("DiaDSP", 0.1): Choice(0.003, 3, 0.9, 0.003, "average"),  # 2.44
    ("DiaDSP", 1): Choice(0.003, 3, 0.9, 0.003, "average"),  # 2.16
    ("DiaDSP", 10): Choice(0.1, 3, 0.9, 0.1, "average"),  # 2.07
    ("DiaDSP", 100): Choice(0.1, 10, 0.97, 0.1, "average"),  # 1.65
    ("DiaDSP", 1000): Choice(0.03, 30, 0.97, 0.03, "last"),  # 1.07
    ("DiaDSP", 100000): Choice(0.1, 100, 1.0, 1.0, "average"),  # 0.194
    ("PPDC", 0.1): Choice(0.003, 3, 1.0, 1.0, "average"),  # 2.28
    ("PPDC", 1): Choice(0.01, 3, 1.0, 1.0, "average"),  # 2.15
    ("PPDC", 10): Choice(0.03, 100, 1.0, 1.0, "average"),  # 1.26
    ("PPDC", 100): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.347
    ("PPDC", 1000): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.313
    ("PPDC", 100000): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.312
    ("Gradient descent", 0.1): Choice(0.003, 3, 1.0, 1.0, "average"),  # 2.24
    ("Gradient descent", 1): Choice(0.01, 3, 1.0, 1.0, "average"),  # 2.14
    ("Gradient descent", 10): Choice(0.03, 100, 1.0, 1.0, "average"),  # 1.16
    ("Gradient descent", 100): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.327
    ("Gradient descent", 1000): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.298
    ("Gradient descent", 100000): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.297
    ("DPP2, Gaussian", 0.1): Choice(0.003, 100, 1.0, 0.003, "average"),  # 1.6
    ("DPP2, Gaussian", 1): Choice(0.03, 100, 1.0, 0.03, "average"),  # 0.747
    ("DPP2, Gaussian", 10): Choice(0.1, 100, 1.0, 0.1, "average"),  # 0.104
    ("DPP2, Gaussian", 100): Choice(0.1, 100, 1.0, 0.1, "average"),  # 0.137
    ("DPP2, Gaussian", 1000): Choice(0.1, 100, 1.0, 1.0, "average"),  # 0.125
    ("DPP2, Gaussian", 100000): Choice(0.1, 100, 1.0, 0.1, "last"),  # 0.00841
    ("DPP2, damped, Gaussian", 0.1): Choice(0.003, 100, 1.0, 0.003, "average"),  # 1.56
    ("DPP2, damped, Gaussian", 1): Choice(0.03, 100, 1.0, 0.03, "average"),  # 0.677
    ("DPP2, damped, Gaussian", 10): Choice(0.1, 100, 1.0, 0.1, "average"),  # 0.121
    ("DPP2, damped, Gaussian", 100): Choice(0.1, 100, 1.0, 1.0, "average"),  # 0.136
    ("DPP2, damped, Gaussian", 1000): Choice(0.1, 100, 1.0, 0.1, "last"),  # 0.0214
    ("DPP2, damped, Gaussian", 100000): Choice(0.1, 100, 1.0, 0.1, "last"),  # 0.00422
    ("Gradient descent, Gaussian", 0.1): Choice(0.003, 100, 1.0, 1.0, "average"),  # 1.62
    ("Gradient descent, Gaussian", 1): Choice(0.03, 100, 1.0, 1.0, "average"),  # 0.724
    ("Gradient descent, Gaussian", 10): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.299
    ("Gradient descent, Gaussian", 100): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.291
    ("Gradient descent, Gaussian", 1000): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.296
    ("Gradient descent, Gaussian", 100000): Choice(0.03, 100, 1.0, 1.0, "last"),  # 0.297
}
