"""Many rows in bounded statements, so that the event loop is never held for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

BATCH = 500  # rows, or parameters, of one statement: SQLite allows 32,766 parameters, and the loop stays free


def batches(given: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """`given` in lists of at most `size`."""
    iterator = iter(given)
    while batch := list(islice(iterator, size)):
        yield batch


async def pages(connection: AsyncConnection, query: Select[*tuple[Any, ...]], key: Any) -> AsyncIterator[Any]:
    """Rows in the order of `key`, the query's first column, batch by batch."""
    last = ""
    while True:
        page = (await connection.execute(query.where(key > last).order_by(key).limit(BATCH))).all()
        for row in page:
            yield row
        if len(page) < BATCH:
            return
        last = page[-1][0]
