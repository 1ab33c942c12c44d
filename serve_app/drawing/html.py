"""HTML pages in one file that needs no other."""

from html import escape

from model.names import readable

STYLE = """
:root { --ink: #1b1f24; --soft: #656d76; --paper: #fff; --rule: #d8dee4; --score: #0b62a8; --mark: #1b1f24;
  --shade: #f6d98a }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa3ad; --paper: #14171b;
  --rule: #31373e; --score: #6cb6f5; --mark: #e6e8eb; --shade: #574a1e } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.2rem; max-width: 1180px; color: var(--ink);
  background: var(--paper) }
h1 { font-size: 1.6rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule) } h3 { margin-top: 2rem }
.wide { overflow-x: auto } figure { margin: 1rem 0 1.6rem } figcaption, .about { color: var(--soft); font-size: .9rem }
figure.plot svg { display: block; width: 100%; min-width: 640px; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink) } svg path { fill: none; stroke: var(--ink) }
svg .grid { stroke: var(--rule); stroke-width: .7 } svg .axis { stroke: var(--soft) }
svg .score { stroke: var(--score); stroke-width: 1.3; stroke-linejoin: round }
svg .threshold { stroke: var(--mark); stroke-width: 1; stroke-dasharray: 4 3 }
svg .incident, .key.incident { fill: var(--shade); background: var(--shade) }
.key { display: inline-block; width: 1.1em; height: .7em; margin: 0 .15em }
.key.line { height: 0; border-top: 2px solid var(--score); vertical-align: middle }
.key.dashed { height: 0; border-top: 1.5px dashed var(--mark); vertical-align: middle }
@media print { body { max-width: none; padding: 0; font-size: 11px } figure, tr { break-inside: avoid }
  figure.plot svg { min-width: 0 } .wide { overflow: visible }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact } }
"""


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


def figure(svg: str, caption: str, class_: str = "plot") -> str:
    """Return a picture with its caption."""
    return f'<figure class="{class_}"><div class="wide">{svg}</div><figcaption>{caption}</figcaption></figure>'


def key(class_: str) -> str:
    """Return a key of the picture for its caption: a patch or a line."""
    return f'<span class="key {class_}"></span>'
