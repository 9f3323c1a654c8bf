"""MkDocs hook: the API reference, a page a package, of its modules' docstrings."""

import ast
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PACKAGES = (  # what a user's own code calls, from the nearest down
    "core",
    "algorithms",
    "data",
    "models",
    "selection",
    "simulate",
    "sweep",
    "evaluation",
    "report",
    "landscape",
    "conformance",
    "runs",
    "engine",
    "runtime",
)
FIRST = "reference/index.md"


def on_config(config):
    """Lists the pages below "API reference"."""
    (section,) = (part for part in config.nav if "API reference" in part)
    pages = [{f"pfljax.{name}": f"reference/{name}.md"} for name in PACKAGES]
    section["API reference"] = [FIRST, *pages]
    return config


def on_files(files: Files, config) -> Files:
    """Adds the pages, none of which is a file in docs/."""
    texts = {FIRST: _overview()}
    texts |= {f"reference/{name}.md": _page(name) for name in PACKAGES}
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    return files


def _overview() -> str:
    """The public names, and what each package is; both link to the packages' pages."""
    names = [f"- [`pfljax.{path.rpartition('.')[2]}`][{path}]" for path in _public()]
    rows = [f"| [`pfljax.{n}`]({n}.md) | {_about(n)} |" for n in PACKAGES]
    head = ["# API reference", "", "`pfljax` itself has these names:", "", *names, ""]
    return "\n".join([*head, "| package | what it is |", "|---|---|", *rows, ""])


def _public() -> list[str]:
    """Where the names of `pfljax/__init__.pyi` are defined."""
    stub = ast.parse((ROOT / "pfljax/__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return [f"pfljax.{node.module}.{node.names[0].name}" for node in imports]


def _page(name: str) -> str:
    """The modules of a package, but those whose names begin with "_"."""
    folder = ROOT / "pfljax" / name
    lines = [f"# pfljax.{name}\n", f"::: pfljax.{name}\n    options:"]
    lines += ["      members: false", "      show_root_heading: false\n"]
    for path in sorted(folder.rglob("*.py")):
        if not path.name.startswith("_"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            lines.append(f"::: {module}\n")
    return "\n".join(lines)


def _about(name: str) -> str:
    """The first line of a package's docstring."""
    text = (ROOT / "pfljax" / name / "__init__.py").read_text("utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
