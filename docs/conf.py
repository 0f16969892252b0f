"""The site: ``make docs`` builds it from the pages here and from the docstrings."""

import hashlib
import os
from importlib.metadata import version as installed
from pathlib import Path

import dpcvx as dp
import nbformat
from jupyter_cache import get_cache

project = "dpcvx"
author = "The dpcvx maintainers"
copyright = f"2026, {author}"
version = release = installed("dpcvx")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinxcontrib.katex",
]
templates_path = ["_templates"]
exclude_patterns = ["**/.ipynb_checkpoints"]
nitpicky = False
# A name in single backticks is a link where it is one of the package's, and else stands as it is.
default_role = "autolink"

# Pages are Markdown. Those with a notebook's header run when the site is built, unless neither they
# nor any file of the package changed.
package = hashlib.sha256()
root = Path(__file__).parent.parent
for source in sorted([*root.glob("dpcvx/**/*.py"), *root.glob("problems/**/*.py")]):
    package.update(source.read_bytes())
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(root / "out" / "notebooks" / package.hexdigest()[:16])
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "warn"

# Kernels log errors only: that they listen on a local socket need not be said.
kernel = root / "out" / "kernel"
(kernel / "profile_default").mkdir(parents=True, exist_ok=True)
(kernel / "profile_default" / "ipython_kernel_config.py").write_text(
    "c.Application.log_level = 40\n"
)
os.environ["IPYTHONDIR"] = str(kernel)

# Formulas without a network: KaTeX comes with the extension, and what it makes is MathML, which
# browsers draw in fonts of their own.
html_math_renderer = "katex"
katex_css_path = "katex-math.css"
katex_options = '{output: "mathml"}'

autosummary_generate = True
# Pages of methods have their parameters; `Algorithm` has the hooks, for authors of methods.
autosummary_context = {
    "method_pages": [
        name
        for name in dp.__all__
        if isinstance(kind := getattr(dp, name), type)
        and issubclass(kind, dp.Algorithm)
        and kind is not dp.Algorithm
    ],
    "hooks": ", ".join(name for name in dir(dp.Algorithm) if not name.startswith("_")),
}
# The column at the side names members without their class, which is the page's title.
toc_object_entries_show_parents = "hide"
# Docstrings say what a value is, with shapes and units.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# The executed notebooks stand beside their pages.


def setup(app):
    """Offer lessons as notebooks."""
    app.connect("build-finished", copy_notebooks)


def copy_notebooks(app, error):
    """Write the lessons beside their pages, with outputs, which MyST-NB leaves in its cache."""
    if error is not None:
        return
    cache = get_cache(app.config.nb_execution_cache_path)
    for path in (Path(app.outdir).parent / "jupyter_execute" / "lessons").glob("*.ipynb"):
        _, notebook = cache.merge_match_into_notebook(nbformat.read(path, as_version=4))
        nbformat.write(notebook, Path(app.outdir) / "lessons" / path.name)


html_theme = "pydata_sphinx_theme"
html_title = f"dpcvx {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    # Tutorial, Guides, Lessons, Privacy, Reference, Benchmarks.
    "header_links_before_dropdown": 6,
    # Pages with wide code have no second column.
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "tutorial": []}
    | {
        f"{part}/{page.stem}": []
        for part in ("benchmarks", "lessons", "papers")
        for page in Path(__file__).parent.glob(f"{part}/*.md")
    },
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
# Where the site is published, the address of its list of versions; pages then offer the others.
versions = os.environ.get("DOCS_VERSIONS")
if versions:
    html_theme_options |= {
        "switcher": {"json_url": versions, "version_match": version},
        "check_switcher": False,  # the list is written when the site is published
        "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    }
# Pages without others below them have no navigation at their side.
html_sidebars = {"**": ["sidebar-nav-bs"]}
html_sidebars |= {page: [] for page in ("index", "tutorial", "search", "genindex")}
