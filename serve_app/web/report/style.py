"""The style of reports: light, dark and printed. ``serve_app.drawing.html`` has the common style."""

STYLE = """
:root { --s0: #b8c4ce; --s1: #f2cf7e; --s2: #ee9c4b; --s3: #d95a2b; --s4: #a3121b; --unscored: #fff; --hop: #a3121b;
  --space: #f3f5f7; --plan: #5b3fa0; --minor: #a86a00; --major: #c2410c; --critical: #a3121b; --on-badge: #fff }
@media screen and (prefers-color-scheme: dark) { :root { --s0: #4d5a66; --s1: #8a6a1f; --s2: #c9762a; --s3: #f0643a;
  --s4: #ff5c66; --unscored: #14171b; --hop: #ff7a82; --space: #1b2026; --plan: #b9a2ff; --minor: #e0a63a;
  --major: #ff8a4c; --critical: #ff5c66; --on-badge: #14171b } }
body { max-width: 960px }
header { border-left: 6px solid var(--minor); padding: .2rem 0 .2rem 1.1rem }
header.notice { border-color: var(--soft) }
header.major { border-color: var(--major) } header.critical { border-color: var(--critical) }
.kicker { margin: 0; color: var(--soft) } .kicker strong { color: var(--minor); text-transform: uppercase }
.notice .kicker strong { color: var(--soft) }
.major .kicker strong { color: var(--major) } .critical .kicker strong { color: var(--critical) }
header h1 { margin: .1rem 0; font-size: 1.4rem; line-height: 1.3; overflow-wrap: anywhere }
header p { margin: .3rem 0 }
header dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: .9rem 0 } header dd { margin: 0 }
header dt { color: var(--soft); font-size: .8rem } header dd { font-size: 1.35rem; font-weight: 600; line-height: 1.25 }
small { display: block; color: var(--soft); font-size: .8rem; font-weight: 400 }
.planned { color: var(--plan); font-weight: 600 } .planned.none { color: var(--soft); font-weight: 400 }
h2 { margin-top: 2rem; font-size: 1.15rem }
svg .space { fill: var(--space) } svg .of-space { fill: var(--soft); font-size: 12px; letter-spacing: .04em }
svg .call { stroke: var(--s0); stroke-width: .8; stroke-opacity: .55 }
svg .call.s2 { stroke: var(--s2); stroke-width: 1.6; stroke-opacity: 1 }
svg .call.s3 { stroke: var(--s3); stroke-width: 2.2; stroke-opacity: 1 }
svg .call.s4 { stroke: var(--s4); stroke-width: 2.8; stroke-opacity: 1 }
svg .service { stroke: var(--paper); stroke-width: 1.5 } svg .s0, .key.s0 { fill: var(--s0); background: var(--s0) }
svg .s1, .key.s1 { fill: var(--s1); background: var(--s1) } svg .s2, .key.s2 { fill: var(--s2); background: var(--s2) }
svg .s3, .key.s3 { fill: var(--s3); background: var(--s3) } svg .s4, .key.s4 { fill: var(--s4); background: var(--s4) }
svg .s-, .key.s- { fill: var(--unscored); background: var(--unscored) } .key.s- { border: 1px solid var(--soft) }
svg .service.s- { stroke: var(--soft) } svg .culprit { stroke: var(--ink); stroke-width: 3.5 }
svg .service.gone { fill: var(--paper); stroke: var(--critical); stroke-width: 3.5; stroke-dasharray: 6 4 }
svg .hop { stroke: var(--hop); stroke-width: 3; stroke-linecap: round } svg .hop.many { stroke-width: 2 }
svg .head { fill: var(--hop); stroke: none }
.key.hop { height: 0; border-top: 3px solid var(--hop); vertical-align: middle }
svg .badge { fill: var(--hop) } svg .number { fill: var(--on-badge); font-weight: 700 }
svg .name { font-size: 12px; paint-order: stroke; stroke: var(--space); stroke-width: 3px; stroke-linejoin: round }
svg .name.first { font-size: 15px; font-weight: 700 } svg .name.aside { font-size: 10.5px; fill: var(--soft) }
svg .flag { stroke: var(--plan); stroke-width: 1.4 } svg .planned { fill: var(--plan); font-weight: 600 }
svg .tick { stroke: var(--plan); stroke-width: 1.4; stroke-opacity: .6 }
.key.flag, .key.tick { width: 0; height: 1em; border-left: 2px solid var(--plan); vertical-align: middle }
.key.tick { height: .5em; opacity: .6 } svg .since { stroke: var(--ink); stroke-width: 1 }
.suspects, .reasons { list-style: none; margin: 0; padding: 0 } .suspect h3 { margin: 1.4rem 0 .3rem; font-size: 1rem;
  display: flex; flex-wrap: wrap; align-items: center; gap: .3rem .7rem; overflow-wrap: anywhere }
.place { color: var(--soft) } .share { font-weight: 400; color: var(--soft) }
.bar { flex: 0 0 120px; height: .6rem; background: var(--rule); border-radius: .3rem; overflow: hidden }
.bar span { display: block; height: 100%; background: var(--critical) }
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
@media print { .suspect, .reasons li, header { break-inside: avoid } h2, h3, .about { break-after: avoid }
  figure svg { max-height: 150mm } .reasons { grid-template-columns: repeat(3, 1fr) } }
"""
