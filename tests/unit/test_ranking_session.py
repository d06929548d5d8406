"""Priors of a session's turns, and admission by toolset."""

from __future__ import annotations

from tests.support.rankable import ids, indexed, query, tool
from toolbelay.ranking.admission import BEST_SEEDS
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.port import Ranking

CRM = [
    tool("crm/find_customer", "Find a customer by name"),
    tool("crm/list_customer_orders", "List the orders of a customer"),
    tool("crm/update_customer_address", "Change the address of a customer"),
    tool("crm/merge_customers", "Merge two customer records"),
    tool("crm/export", "Write everything to a spreadsheet"),
    tool("crm/authenticate", "Log in before anything else"),
    tool("crm/archive", "Put away what is old"),
    tool("crm/statistics", "Count and chart"),
]
CHAT = [
    tool("chat/post_message", "Post a message to a channel"),
    tool("chat/list_channels", "List the channels"),
    tool("chat/read_thread", "Read the replies in a thread"),
    tool("chat/react", "Add an emoji to a message"),
    tool("chat/invite", "Invite a person to a channel"),
    tool("chat/pin_message", "Pin a message in a channel"),
    tool("chat/mute", "Silence a channel"),
    tool("chat/whoami", "Tell which account is used"),
]
OTHERS = [tool(f"misc{n}/tool_{n}", f"does task number {n} with gadgets") for n in range(40)]
TOOLSETS = RankingOptions(admission="toolsets")


def toolsets(ranking: Ranking) -> set[str]:
    return {tool_id.partition("/")[0] for tool_id in ids(ranking)}


async def test_a_toolset_that_gathers_hits_comes_before_strangers() -> None:
    index = await indexed(*CRM, *CHAT, *OTHERS, tool("zoo/name_animal", "Give an animal a name"))
    text = "find the customer by name and change the customer address"
    session = ids(await index.rank(query(text, sticky=True)))
    alone = ids(await index.rank(query(text)))
    assert session.index("crm/merge_customers") < session.index("zoo/name_animal")
    assert session[0] == alone[0]  # the best hit keeps its place


async def test_priors_can_be_switched_off() -> None:
    index = await indexed(*CRM, *CHAT, *OTHERS)
    off = RankingOptions(toolset_weight=0, called_weight=0, supply_weight=0)
    text = "find the customer address"
    with_session = await index.rank(query(text, sticky=True, options=off, called=("chat/react",)))
    assert ids(with_session) == ids(await index.rank(query(text)))


async def test_toolsets_called_before_are_preferred_in_a_short_follow_up() -> None:
    tools = [tool("mail/list_items", "List items"), tool("todo/list_items", "List items"), *OTHERS]
    index = await indexed(*tools)
    follow_up = "list the items"
    assert ids(await index.rank(query(follow_up, sticky=True)))[0] == "mail/list_items"
    after = await index.rank(query(follow_up, sticky=True, called=("todo/create",), stored=("todo/create",)))
    assert ids(after)[0] == "mail/list_items"  # a called tool that is gone says nothing
    after = await index.rank(query(follow_up, sticky=True, called=("todo/list_items",)))
    assert ids(after)[0] == "todo/list_items"


async def test_a_supplier_of_a_parameter_is_preferred_among_siblings() -> None:
    maps = [
        tool("geo/distance", "Distance between places", {"a": {"description": "zipcode of the start"}}),
        tool("geo/aaa_elevation", "Height of places"),
        tool("geo/zipcode_of", "For places"),
        tool("geo/place_photo", "Picture of places"),
    ]
    index = await indexed(*maps, *OTHERS)
    on = ids(await index.rank(query("distance between places", sticky=True)))
    off = ids(await index.rank(query("distance between places", sticky=True, options=RankingOptions(supply_weight=0))))
    assert on.index("geo/zipcode_of") < off.index("geo/zipcode_of") or on.index("geo/zipcode_of") == 1


async def test_evidence_of_tools_that_the_caller_may_not_see_moves_nothing() -> None:
    """The order among the eligible equals that of a caller for whom the hidden toolmates never match."""
    index = await indexed(*CRM, *CHAT, *OTHERS)
    visible = {t.tool_id for t in (*CHAT, *OTHERS)} | {"crm/export"}
    text = "find the customer orders and update the customer address, then post a message"
    session = ids(await index.rank(query(text, sticky=True, eligible=visible.__contains__)))
    assert "crm/export" not in session
    assert set(session) <= visible


async def test_admission_brings_the_whole_toolset_first() -> None:
    index = await indexed(*CRM, *CHAT, *OTHERS)
    text = "find the customer and list the customer orders"
    ranking = await index.rank(query(text, sticky=True, options=TOOLSETS, limit=64))
    assert {t.tool_id for t in CRM} <= set(ids(ranking))
    others = {t.tool_id for t in CHAT} & set(ids(ranking))
    assert len(others) < BEST_SEEDS  # the best tools of all come too
    assert all(match.score > 0 for match in ranking.matches)


async def test_admission_keeps_still_while_the_session_answers() -> None:
    index = await indexed(*CRM, *CHAT, *OTHERS)
    stored = tuple(t.tool_id for t in CRM)
    for text in ("change the address of the customer", "merge the records", "and what about the other customer?"):
        ranking = await index.rank(query(text, sticky=True, options=TOOLSETS, limit=64, stored=stored))
        assert set(ids(ranking)) <= set(stored), text


async def test_admission_adds_the_toolset_of_a_new_request() -> None:
    index = await indexed(*CRM, *CHAT, *OTHERS)
    stored = tuple(t.tool_id for t in CRM)
    text = "Post a message to the channel and pin the message"
    ranking = await index.rank(
        query(text, sticky=True, options=TOOLSETS, limit=64, stored=stored, called=("crm/find_customer",))
    )
    assert {t.tool_id for t in CHAT} <= set(ids(ranking))


async def test_a_request_inside_the_query_brings_its_toolset() -> None:
    index = await indexed(*CRM, *CHAT, *OTHERS)
    stored = tuple(t.tool_id for t in CRM)
    text = "Find the customer and merge the customer records, list the customer orders. Post a message to the channel."
    ranking = await index.rank(
        query(text, sticky=True, options=TOOLSETS, limit=64, stored=stored, called=("crm/find_customer",))
    )
    assert "chat/post_message" in ids(ranking)


async def test_a_large_toolset_brings_what_the_query_names() -> None:
    large = [tool(f"cloud/service_{n}", f"Manage service {n} of the cloud") for n in range(300)]
    index = await indexed(*large, tool("cloud/redis_cache", "Manage a redis cache"), *CHAT)
    ranking = await index.rank(query("redis cache", sticky=True, options=TOOLSETS, limit=64))
    assert ids(ranking)[0] == "cloud/redis_cache"
    assert len(ids(ranking)) <= 32


async def test_without_toolsets_the_best_tools_come_one_by_one() -> None:
    index = await indexed(*(tool(f"s{n}/report_{n}", "Make a report") for n in range(30)))
    ranking = await index.rank(query("report", sticky=True, options=TOOLSETS, limit=64))
    assert 8 <= len(ids(ranking)) <= 32


async def test_admission_of_nothing_for_a_query_without_a_match() -> None:
    index = await indexed(*CRM, *CHAT)
    assert (await index.rank(query("zzz qqq", sticky=True, options=TOOLSETS))).matches == ()


async def test_one_toolset_alone_is_ranked() -> None:
    index = await indexed(*CRM)
    assert ids(await index.rank(query("orders", sticky=True, options=TOOLSETS)))[0] == "crm/list_customer_orders"
    assert "crm/list_customer_orders" in ids(await index.rank(query("orders", sticky=True)))


async def test_a_first_turn_has_the_best_tools_although_their_toolset_is_not_the_one() -> None:
    alone = tool("tiny/find_a_customer", "Find a customer")
    index = await indexed(*CRM, *CHAT, alone)
    ranking = await index.rank(query("find a customer and list the orders", sticky=True, options=TOOLSETS, limit=64))
    assert {t.tool_id for t in CRM} | {alone.tool_id} <= set(ids(ranking))
