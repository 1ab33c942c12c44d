"""HTML pages in one file that needs no other."""

from html import escape

from model.names import readable

# Colours by meaning, the same as on the page: light, and dark on a screen.
LIGHT = {
    "ink": "#1b1f24", "soft": "#57606a", "paper": "#ffffff", "panel": "#f6f8fa", "rule": "#d0d7de",
    "accent": "#0b5cad", "alarm": "#b3151f", "alarm-paper": "#ffebe9", "major": "#b23c0b", "major-paper": "#fff1e8",
    "warn": "#8a5300", "warn-paper": "#fff3d6", "notice": "#0f6674", "shade": "rgba(209, 36, 47, 0.16)",
    "node": "#9fb3c4", "node-unusual": "#e6a100", "node-bad": "#d1242f", "edge": "#c5ced6", "new-call": "#7439c6",
    "recover-paper": "#e3effb",
}  # fmt: skip
DARK = {
    "ink": "#e6e8eb", "soft": "#a3adb8", "paper": "#0f1317", "panel": "#171c22", "rule": "#323a43",
    "accent": "#6cb6f5", "alarm": "#ff8b85", "alarm-paper": "#3a1517", "major": "#ffa366", "major-paper": "#3a2010",
    "warn": "#f0b849", "warn-paper": "#33270d", "notice": "#7cc7d4", "shade": "rgba(255, 100, 95, 0.22)",
    "node": "#50667a", "node-unusual": "#d9a021", "node-bad": "#ff5a52", "edge": "#36414c", "new-call": "#c6a3ff",
    "recover-paper": "#102538",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return ":root { " + "; ".join(f"--{name}: {colour}" for name, colour in colours.items()) + " }"


STYLE = (
    f"{_variables(LIGHT)}\n@media screen and (prefers-color-scheme: dark) {{ {_variables(DARK)} }}"
    + """
* { box-sizing: border-box }
body { font: 15px/1.45 system-ui, "Segoe UI", Roboto, sans-serif; margin: 0 auto; padding: 1.2rem;
  max-width: 1180px; color: var(--ink); background: var(--paper) }
h1 { font-size: 1.6rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule) } h3 { margin-top: 2rem }
.wide { overflow-x: auto } figure { margin: 1rem 0 1.6rem } figcaption, .about { color: var(--soft); font-size: .9rem }
figure.plot svg { display: block; width: 100%; min-width: 640px; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink) } svg path { fill: none; stroke: var(--ink) }
svg .grid { stroke: var(--rule); stroke-width: .7 } svg .axis { stroke: var(--soft) }
svg .score { stroke: var(--accent); stroke-width: 1.3; stroke-linejoin: round }
svg .threshold { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 3 }
svg .incident, .key.incident { fill: var(--shade); background: var(--shade) }
.key { display: inline-block; width: 1.1em; height: .7em; margin: 0 .15em }
.key.line { height: 0; border-top: 2px solid var(--accent); vertical-align: middle }
.key.dashed { height: 0; border-top: 1.5px dashed var(--soft); vertical-align: middle }
@media print { body { max-width: none; padding: 0; font-size: 11px } figure, tr { break-inside: avoid }
  figure.plot svg { min-width: 0 } .wide { overflow: visible }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact } }
"""
)


def readable_html(text: str) -> str:
    """Return a text for HTML, with original names instead of ids."""
    return escape(readable(text))


def document(title: str, body: str, style: str = "") -> str:
    """Return a page with the common style and additional ``style``."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{readable_html(title)}</title><style>{STYLE}{style}</style></head><body><main>{body}</main></body></html>\n"
    )
