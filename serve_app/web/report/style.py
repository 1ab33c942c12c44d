"""The style of reports: light, dark and printed. ``serve_app.drawing.html`` has the common style."""

STYLE = """
:root { --plan: #6a3fb5 }
@media screen and (prefers-color-scheme: dark) { :root { --plan: #b9a2ff } }
body { max-width: 960px } a { color: var(--accent) }
header, .together { padding: .6rem .9rem; border: 2px solid var(--rule); border-left-width: 8px; border-radius: 8px;
  background: var(--panel) }
.critical { --severity: var(--critical); --severity-paper: var(--critical-paper) }
.major { --severity: var(--major); --severity-paper: var(--major-paper) }
.minor { --severity: var(--minor); --severity-paper: var(--minor-paper) }
.notice { --severity: var(--notice); --severity-paper: var(--panel) }
header { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: .1rem .8rem; border-color: var(--severity);
  background: var(--severity-paper) }
header > * { grid-column: 2 } header > .icon { grid-area: 1 / 1 / span 2 }
.kicker { margin: 0; color: var(--soft) } .kicker strong { color: var(--severity); text-transform: uppercase }
header h1 { margin: .1rem 0; font-size: 1.3rem; line-height: 1.25; color: var(--severity); overflow-wrap: anywhere }
header.notice h1 { color: var(--ink) }
header.critical { --soft: #ffe1de; --plan: #fff; border-color: #8c0d17; background: #b3151f; color: #fff }
header.critical :is(h1, strong) { color: #fff }
header p { margin: .3rem 0 }
header dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: .7rem 0 .4rem } header dd { margin: 0 }
header dt { color: var(--soft); font-size: .8rem } header dd { font-size: 1.3rem; font-weight: 600; line-height: 1.25 }
small { display: block; color: var(--soft); font-size: .8rem; font-weight: 400 }
.planned { color: var(--plan); font-weight: 600 } .planned.none { color: var(--soft); font-weight: 400 }
.icon { flex: none; vertical-align: -.15rem }
.together ol { list-style: none; margin: .3rem 0 0; padding: 0 } .together li { margin: .2rem 0 }
.together { margin: 0 0 .8rem } header + .together { margin-top: .8rem }
.together p { margin: 0 } article + article { margin-top: 3rem }
h2 { margin-top: 1.8rem; font-size: 1.1rem }
svg .space { fill: var(--panel) } svg .of-space { fill: var(--soft); font-size: 12px; letter-spacing: .04em }
svg .call { stroke: var(--edge); stroke-width: .9; stroke-opacity: .8 }
svg .call.s1 { stroke: var(--node-unusual); stroke-width: 1.6; stroke-opacity: 1 }
svg .call.s2 { stroke: var(--node-bad); stroke-width: 2.4; stroke-opacity: 1 }
svg .service { stroke: var(--paper); stroke-width: 1.5 }
svg .service.s0, .key.s0 { fill: var(--node); background: var(--node) }
svg .service.s1, .key.s1 { fill: var(--node-unusual); background: var(--node-unusual) }
svg .service.s2, .key.s2 { fill: var(--node-bad); background: var(--node-bad) }
svg .service.s-, .key.s- { fill: var(--paper); background: var(--paper); stroke: var(--soft) }
.key.s- { border: 1px solid var(--soft) } svg .culprit { stroke: var(--ink); stroke-width: 3.5 }
svg .service.gone { fill: var(--paper); stroke: var(--critical); stroke-width: 3.5; stroke-dasharray: 6 4 }
svg .hop { stroke: var(--path); stroke-width: 3; stroke-linecap: round } svg .hop.many { stroke-width: 2 }
svg .head { fill: var(--path); stroke: none }
.key.hop { height: 0; border-top: 3px solid var(--path); vertical-align: middle }
svg .badge { fill: var(--path) } svg .number { fill: var(--paper); font-weight: 700 }
svg .plate { fill: var(--paper); fill-opacity: .88; stroke: var(--rule); stroke-width: .7 }
svg .critical { fill: #b3151f } svg .major { fill: #c2410c } svg .minor { fill: #8a5300 } svg .notice { fill: #0f6674 }
svg .recovering { fill: #0969da } svg .unknown { fill: #e3a008 }
svg .on-state { fill: #fff; font-weight: 600 }
svg .on-state.unknown { fill: #2b1d00 }
svg .first-suspect { fill: var(--panel); stroke: var(--rule); stroke-width: 1 } svg .peak { fill: var(--score) }
table { width: 100%; border-collapse: collapse; font-size: .9rem } th { text-align: left; color: var(--soft) }
th, td { padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--rule) }
td:nth-child(3) { overflow-wrap: anywhere }
svg .name { font-size: 12px }
svg .name.first { font-size: 15px; font-weight: 700 } svg .name.aside { font-size: 10.5px; fill: var(--soft) }
svg .flag { stroke: var(--plan); stroke-width: 1.4 } svg .planned { fill: var(--plan); font-weight: 600 }
svg .tick { stroke: var(--plan); stroke-width: 1.4; stroke-opacity: .6 }
.key.flag, .key.tick { width: 0; height: 1em; border-left: 2px solid var(--plan); vertical-align: middle }
.key.tick { height: .5em; opacity: .6 } svg .since { stroke: var(--ink); stroke-width: 1 }
.suspects, .reasons { list-style: none; margin: 0; padding: 0 } .suspect h3 { margin: 1.4rem 0 .3rem; font-size: 1rem;
  display: flex; flex-wrap: wrap; align-items: center; gap: .3rem .7rem; overflow-wrap: anywhere }
.place { color: var(--soft) } .share { font-weight: 400; color: var(--soft) }
.bar { flex: 0 0 120px; height: .6rem; background: var(--rule); border-radius: .3rem; overflow: hidden }
.bar span { display: block; height: 100%; background: var(--node-bad) }
.reasons { display: grid; grid-template-columns: repeat(auto-fill, minmax(270px, 1fr)); gap: .6rem 1.4rem }
.reasons p { margin: 0 0 .2rem } .reasons svg { display: block; width: 100%; max-width: 400px; height: auto }
figure svg { display: block; width: 100%; height: auto } .small { display: none }
.affected { list-style: none; margin: 0; padding: 0; columns: 10rem; font-size: .9rem; overflow-wrap: anywhere }
.judge { display: grid; grid-template-columns: auto 1fr; gap: .1rem 1rem; font-size: .9rem }
.judge dt { color: var(--soft) } .judge dd { margin: 0; overflow-wrap: anywhere }
@media (max-width: 600px) { body { padding: .8rem } header h1 { font-size: 1.2rem }
  header { padding-left: .8rem } header dl { display: grid; grid-template-columns: 1fr 1fr; gap: .6rem 1rem }
  .large { display: none } .small { display: block } .reasons svg { max-width: none } .bar { flex-basis: 70px }
  .judge { grid-template-columns: 1fr } .judge dd { margin-bottom: .4rem } }
@page { margin: 14mm }
@media print { article + article { break-before: page }
  tr, .suspect, .reasons li, header { break-inside: avoid } h2, h3, .about { break-after: avoid }
  figure svg { max-height: 150mm } .reasons { grid-template-columns: repeat(3, 1fr) } }
"""
