"""Pages that hold all they need: no request leaves them."""

from __future__ import annotations

import html
import json
from string import Template

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
html, body { margin: 0; height: 100%; background: #fff; color: #222;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
header { padding: 16px 24px 8px; }
h1 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
header p { margin: 2px 0 0; color: #555; }
"""

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header><h1>$title</h1><p>$subtitle</p></header>
$body
</body>
</html>
""")


def make_page(title: str, subtitle: str, body: str, *, style: str = "") -> bytes:
    """Put a page together; title and subtitle are text, body and style are trusted."""
    page = PAGE.substitute(
        title=html.escape(title), subtitle=html.escape(subtitle), body=body, style=STYLE + style
    )
    return page.encode("utf-8", "backslashreplace")


def embedded_json(content: object) -> str:
    r"""Write JSON that may stand inside a script element, whatever its strings hold.

    >>> embedded_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    # Only strings hold these three, and an escape there means the same.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
