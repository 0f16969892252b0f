"""What wheels hold beside the package: the case studies, under a name that nobody else has."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CaseStudies(BuildHookInterface[Any]):
    """``problems/`` of a checkout is ``dpcvx_problems`` where a wheel was installed.

    Editable installations keep ``problems``, which would be there twice otherwise.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder to a wheel that is no editable one."""
        if version == "standard":
            build_data["force_include"]["problems"] = "dpcvx_problems"
