"""The demo where there is no terminal: plain lines."""

from rich.console import Console

from serve_app.demo.show import JudgedSnapshot, Show

EVERY = 10  # snapshots between two lines of no news


def print_news(console: Console, before: Show, show: Show) -> None:
    """What is new: each event, each change of status, and now and then the score."""
    if before.scenes[-1:] == show.scenes[-1:]:
        return
    scene = show.scenes[-1]
    for event in show.events:
        if event.scene.index == scene.index:
            console.print(f"{clock(scene)}  {event.text}", markup=False, soft_wrap=True)
    status = before.scenes[-1].verdict.status if before.scenes else ""
    if scene.verdict.status != status or scene.index % EVERY == 0:
        console.print(line(scene), markup=False, soft_wrap=True)


def line(scene: JudgedSnapshot) -> str:
    """A scene in one line."""
    verdict = scene.verdict
    first = verdict.incidents[0].suspects[:3] if verdict.incidents else []
    suspects = f"  suspects {', '.join(s.service for s in first)}" if first else ""
    return (
        f"{clock(scene)}  snapshot {scene.index}: {verdict.status}, score {verdict.mesh_score:.1f}, threshold "
        f"{number(verdict.threshold)}, verdict in {scene.milliseconds:.0f} ms{suspects}"
    )


def clock(scene: JudgedSnapshot) -> str:
    """The time of a scene's snapshot, UTC."""
    return f"{scene.verdict.observed_at:%H:%M:%S}"


def number(value: float | None) -> str:
    """A score, where there is one."""
    return "unknown" if value is None else f"{value:.1f}"
