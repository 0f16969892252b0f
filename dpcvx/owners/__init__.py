"""Many owners: documents and messages that cross between them, what an owner checks, and runs."""

from importlib.util import find_spec

for _package in ("cryptography", "websockets"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"Runs between owners need the package {_package}, which is not installed: "
            "pip install 'dpcvx[owners]'.",
            name=_package,
        )
