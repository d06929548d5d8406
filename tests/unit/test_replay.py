"""Replays: the measures on a recording that can be counted by hand, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.rankable import tool
from toolbelay.application.apply_bundle import ConfigRefusedError
from toolbelay.application.replay import (
    Catalog,
    Question,
    RecordedSession,
    RecordedTurn,
    ask_questions,
    replay_sessions,
)
from toolbelay.application.replay_source import read_catalog, read_questions, read_sessions
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.routes import Route, parse_route
from toolbelay.cli.main import run
from toolbelay.ranking.index import CatalogIndex

TOOLS = [tool("mail/send_email", "Send an email"), tool("disk/list_files", "List files"), tool("media/play_song")]


def route(**options: object) -> Route:
    made, faults, _ = parse_route("r", options)
    assert made is not None, faults
    return made


async def index() -> CatalogIndex:
    made = CatalogIndex()
    await made.refresh({t.tool_id: t for t in TOOLS})
    return made


def session(*turns: tuple[str, tuple[str, ...]]) -> RecordedSession:
    return RecordedSession("s", tuple(RecordedTurn(user, calls) for user, calls in turns))


async def test_measures_are_what_one_counts_by_hand() -> None:
    catalog = Catalog(TOOLS, WireFormat.OPENAI_CHAT)
    played = session(
        ("send an email", ("send_email",)),
        ("send another email", ("send_email", "list_files")),
        ("list the files", ("disk/list_files", "nobody_knows_it")),
    )
    measures = await replay_sessions(await index(), catalog, route(strategy="keyword"), [played])
    mail, files = catalog.tokens(["mail/send_email"]), catalog.tokens(["disk/list_files"])
    effective = 1.25 * mail + 0.1 * mail + (0.1 * mail + 1.25 * files)
    assert measures.call_recall == pytest.approx(3 / 5)
    assert measures.unchanged == pytest.approx(1 / 2)
    assert measures.tools == pytest.approx(4 / 3)
    assert measures.effective_tokens == pytest.approx(effective / 3)
    assert (measures.turns, measures.calls) == (3, 5)


async def test_a_stateless_route_begins_each_turn_anew() -> None:
    catalog = Catalog(TOOLS, WireFormat.OPENAI_CHAT)
    played = session(("send an email", ()), ("list the files", ()))
    anew = route(strategy="keyword", sticky={"enabled": False})
    measures = await replay_sessions(await index(), catalog, anew, [played])
    assert (measures.unchanged, measures.tools) == (0.0, 1.0)


async def test_without_a_match_the_routes_answer_is_counted() -> None:
    catalog = Catalog(TOOLS, WireFormat.OPENAI_CHAT)
    played = [session(("zzz", ()))]
    assert (await replay_sessions(await index(), catalog, route(seed_tools=2), played)).tools == 2
    assert (await replay_sessions(await index(), catalog, route(on_no_match="none"), played)).tools == 0


async def test_questions_take_any_right_answer() -> None:
    catalog = Catalog(TOOLS, WireFormat.OPENAI_CHAT)
    questions = [Question("play a song", ("send_email", "play_song")), Question("zzz", ("send_email",))]
    hit = await ask_questions(await index(), catalog, "keyword", questions)
    assert (hit.top1, hit.at16, hit.questions) == (0.5, 0.5, 2)


def write(folder: Path) -> tuple[Path, Path, Path]:
    catalog = folder / "catalog"
    (catalog / "tools").mkdir(parents=True)
    lines = [
        {
            "toolset": t.toolset,
            "name": t.name,
            "description": json.loads(t.description),
            "input_schema": {"type": "object"},
        }
        for t in TOOLS
    ]
    (catalog / "tools" / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (catalog / "routes.yaml").write_text("routes:\n  mine:\n    strategy: keyword\n    top_k: 3\n")
    sessions = folder / "sessions.jsonl"
    turns = [{"user": "send an email", "calls": ["send_email"]}, {"user": "list files", "calls": ["list_files"]}]
    sessions.write_text(json.dumps({"session": "a", "turns": turns}) + "\n\n")
    questions = folder / "questions.jsonl"
    questions.write_text(json.dumps({"question": "play a song", "calls": ["play_song"]}) + "\n")
    return sessions, catalog, questions


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions, catalog, questions = write(tmp_path)
    picture = tmp_path / "plot.html"
    arguments = [str(sessions), str(catalog), "--questions", str(questions), "--route", "mine", "--plot", str(picture)]
    assert run(["replay", *arguments]) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in ("hybrid 16/2", "profile agentic", "route mine", "anew", "top 1"))
    assert "<svg" in picture.read_text()
    assert "profile agentic" in picture.read_text()


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions, catalog, questions = write(tmp_path)
    assert (
        run(["replay", str(sessions), str(catalog), "--questions", str(questions), "--strategy", "keyword", "--json"])
        == 0
    )
    given = json.loads(capsys.readouterr().out)
    by_label = {row["selection"]: row for row in given["selections"]}
    assert by_label["keyword 16/2"]["call_recall"] == 1.0
    assert given["questions"] == [
        {"strategy": "keyword", "top1": 1.0, "at5": 1.0, "at10": 1.0, "at16": 1.0, "questions": 1}
    ]


def test_a_png_is_drawn(tmp_path: Path) -> None:
    sessions, catalog, _ = write(tmp_path)
    picture = tmp_path / "plot.png"
    assert run(["replay", str(sessions), str(catalog), "--strategy", "keyword", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--route", "nowhere"], "no route 'nowhere'"),
        (["--plot", "plot.bmp"], "a plot ends in"),
    ],
)
def test_faults_are_one_line(change: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions, catalog, _ = write(tmp_path)
    assert run(["replay", str(sessions), str(catalog), "--strategy", "keyword", *change]) != 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"turns": 3}',
        '{"turns": [3]}',
        '{"turns": [{"user": 1}]}',
        '{"turns": [{"user": "a", "calls": [1]}]}',
    ],
)
def test_a_recording_that_cannot_be_read_names_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    path.write_text('{"turns": []}\n' + line)
    with pytest.raises(ConfigRefusedError) as caught:
        read_sessions(path)
    assert caught.value.faults[0].where == "sessions.jsonl:2"


def test_a_catalog_without_tools_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(ConfigRefusedError):
        read_catalog(empty)


def test_the_benchmarks_own_data_can_be_read() -> None:
    for name, tools, sessions, questions in (("bfcl", 1241, 100, 400), ("mcp", 209, 8, 54)):
        folder = Path("bench/data") / name
        assert len(read_catalog(folder / "catalog.jsonl")[0]) == tools
        assert len(read_sessions(folder / "sessions.jsonl")) == sessions
        assert len(read_questions(folder / "questions.jsonl")) == questions
