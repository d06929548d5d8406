"""An MCP server over stdio that does what a script says, well or badly. Standard library only.

`python mcp_stub.py SCRIPT.json`: {"first": {"tools": TEXT, "next": CURSOR?}, "by_cursor": {CURSOR: page},
"error": MESSAGE?, "hang": BOOL?, "noise": BOOL?, "die": BOOL?, "name": NAME?}. TEXT is written as it is.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    script = json.loads(Path(sys.argv[1]).read_text())
    if script.get("noise"):
        say('listening on stdio\n{"level": "info", "tools": "none yet"}')
    sys.stderr.write("stub: a line on standard error\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            say(answer(script, message))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(script: dict[str, Any], message: dict[str, Any]) -> str:
    """The whole answer as text, so that it may hold what no JSON writer writes."""
    if message["method"] == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": script.get("name", "stub"), "version": "1"},
        }
        return head(message) + f'"result":{json.dumps(result)}}}'
    if message["method"] != "tools/list":
        return head(message) + '"error":{"code":-32601,"message":"no such method"}}'
    if script.get("die"):
        sys.exit(3)
    if script.get("hang"):
        time.sleep(600)
    if script.get("error"):
        return head(message) + f'"error":{{"code":-32000,"message":{json.dumps(script["error"])}}}}}'
    cursor = (message.get("params") or {}).get("cursor")
    page = script["by_cursor"][cursor] if cursor else script["first"]
    more = f',"nextCursor":{json.dumps(page["next"])}' if page.get("next") else ""
    return head(message) + f'"result":{{"tools":{page["tools"]}{more}}}}}'


def head(message: dict[str, Any]) -> str:
    return f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},'


if __name__ == "__main__":
    main()
