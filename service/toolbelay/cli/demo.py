"""`toolbelay demo`: a real service, a real session, and a revocation in the middle of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from toolbelay.cli.console import output, plain_table
from toolbelay.cli.demo_service import DemoService
from toolbelay.cli.exits import CommandError
from toolbelay.cli.invoked import invoked_as

if TYPE_CHECKING:
    from toolbelay.v1 import selection_pb2

DATA: Final = Path(__file__).parent / "demo_data"
SESSION: Final = "multi_turn_base_97"
REVOKED: Final = "vehicle_control/fillFuelTank"
REVOKE_BEFORE_TURN: Final = 5  # from 1; the tool was called, so pinned, by then

_GO_ON: Final = """\
That was the real service. To go on, in one terminal (catalog, policies and keys stay in .toolbelay/):
  {toolbelay} serve --dev
and in another, in the same folder:
  {toolbelay} apply {data}
  {toolbelay} select "fill the tank" --session s1 --role driver"""


@click.command()
@click.option("--keep", is_flag=True, help="Keep the temporary folder, for a look at what the service stored.")
def demo(*, keep: bool) -> None:
    """Start the real service, play a session of a driver, and revoke a pinned tool while it runs.

    Needs nothing: Valkey and SQLite come along, on free ports in a temporary folder. Takes some seconds.
    """
    console = output()
    with _folder(keep=keep) as folder, DemoService(folder) as service:
        applied = service.apply(DATA)
        console.print(f"Service up; generation {applied['generation']}: {_counted(applied)}.\n", markup=False)
        play = Play(service)
        for number, turn in enumerate(_turns(), start=1):
            if number == REVOKE_BEFORE_TURN:
                play.revoke()
            play.turn(turn["user"], turn["calls"])
        play.other_role()
        play.check()
    console.print(_GO_ON.format(toolbelay=invoked_as(), data=DATA), markup=False, soft_wrap=True)


@dataclass
class Play:
    """One session as it unfolds. `check` says whether it unfolded as promised."""

    service: DemoService
    shown: list[list[str]] = field(default_factory=list)  # tool ids of each answer
    called: list[str] = field(default_factory=list)
    revoked_after: int = 0
    stranger_saw: list[str] = field(default_factory=list)

    def turn(self, text: str, calls: list[str]) -> None:
        """One model request: select with what was called before, then "call" the tools that were offered."""
        answer = self.service.select(text, called=self.called, role="driver")
        _print_turn(len(self.shown) + 1, text, answer, self.shown[-1] if self.shown else [])
        self.shown.append([tool.tool_id for tool in answer.tools])
        offered = {tool.name for tool in answer.tools}
        self.called += [name for name in calls if name in offered]

    def revoke(self) -> None:
        """Forbid a pinned tool by a real apply, while the service and the session run."""
        applied = self.service.apply(DATA / "incident")
        self.revoked_after = len(self.shown)
        output().print(
            f"[bold yellow]toolbelay apply incident/[/]: generation {applied['generation']},"
            f" incident.cedar forbids {REVOKED} from now on\n"
        )

    def other_role(self) -> None:
        """The same words from another role: policy decides what may be ranked at all."""
        text = _turns()[0]["user"]
        answer = self.service.select(text, called=[], role="analyst")
        self.stranger_saw = [tool.tool_id for tool in answer.tools]
        names = ", ".join(self.stranger_saw) or "nothing"
        output().print("The same first question from the role analyst, whom policy gives other toolsets:")
        output().print(f"  {names}\n", markup=False, style="dim")

    def check(self) -> None:
        """Raise CommandError unless the answers kept the promises."""
        before, after = self.shown[self.revoked_after - 1], self.shown[self.revoked_after]
        rest = [tool_id for tool_id in before if tool_id != REVOKED]
        faults = []
        if REVOKED not in before:
            faults.append(f"{REVOKED} was not pinned before it was revoked")
        if any(REVOKED in answer for answer in self.shown[self.revoked_after :]):
            faults.append(f"{REVOKED} was answered after it was revoked")
        if after[: len(rest)] != rest:
            faults.append("the other tools moved when one was revoked")
        if any(tool_id.startswith("vehicle_control/") for tool_id in self.stranger_saw):
            faults.append("the analyst saw a driver's tool")
        if faults:
            raise CommandError(*faults)
        output().print(f"[green]Checked:[/] {REVOKED} left at once; {len(rest)} others kept their places.\n")


def _print_turn(number: int, text: str, answer: selection_pb2.SelectToolsResponse, before: list[str]) -> None:
    from toolbelay.v1 import selection_pb2

    names = {tool.tool_id: tool.name for tool in answer.tools}
    retained = [t.name for t in answer.tools if t.origin == selection_pb2.ORIGIN_RETAINED]
    added = [t.name for t in answer.tools if t.origin != selection_pb2.ORIGIN_RETAINED]
    pinned = [t.name for t in answer.tools if t.pinned]
    removed = [tool_id.partition("/")[2] for tool_id in before if tool_id not in names]
    estimate = answer.receipt.estimate
    share = 100 * estimate.advertised / max(1, estimate.whole_catalog)
    table = plain_table("", ">", "", title=f"[bold]Turn {number}[/]  [italic]{_shortened(text)}[/]")
    table.show_header = False
    for label, items, colour in (
        ("retained", retained, "white"),
        ("added", added, "green"),
        ("pinned", pinned, "cyan"),
        ("removed", removed, "red"),
    ):
        table.add_row(label, str(len(items)), f"[{colour}]{', '.join(items)}[/]")
    table.add_row(
        "tokens",
        f"{estimate.advertised:,}",
        f"of {estimate.whole_catalog:,} of the whole catalog ({share:.1f} %);"
        f" stable prefix {answer.stable_prefix} of {len(answer.tools)}",
    )
    output().print(table)
    output().print()


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="toolbelay-demo-"))
    try:
        yield folder
    finally:
        if keep:
            output().print(f"Kept: {folder}", markup=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _turns() -> list[dict[str, Any]]:
    for line in (DATA / "sessions.jsonl").read_text().splitlines():
        session = json.loads(line)
        if session["session"] == SESSION:
            turns: list[dict[str, Any]] = session["turns"]
            return turns
    raise CommandError(f"the demo's data is incomplete: no session {SESSION}")


def _counted(applied: dict[str, Any]) -> str:
    kinds = [change["kind"] for change in applied["changes"]]
    return ", ".join(f"{kinds.count(kind)} {word}" for kind, word in _KINDS)


_KINDS: Final = (("tool", "tools"), ("policy", "policy files (roles driver and analyst)"), ("route", "route"))


def _shortened(text: str) -> str:
    return text if len(text) <= 110 else text[:107] + "…"
