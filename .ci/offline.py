"""MkDocs hook: a page that would ask the network for something fails the build."""

import re
from pathlib import Path

from mkdocs.exceptions import PluginError

ASKS = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b[^>]*\bhref=["']?(?:https?:)?//[^>]*>"""
    r"""|url\(["']?(?:https?:)?//[^)]*\)|@import\s+["'](?:https?:)?//[^"']*"""
)


def on_post_build(config):
    """Looks at all pages and styles of the built site."""
    site = Path(config.site_dir)
    for path in (*site.rglob("*.html"), *site.rglob("*.css")):
        asked = ASKS.search(path.read_text("utf-8"))
        if asked:
            name = path.relative_to(site)
            raise PluginError(f"{name} asks the network: {asked[0][:200]}")
