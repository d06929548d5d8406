"""The Python client: for any gateway that wants tools per turn in a few lines.

```python
async with AsyncToolbelayClient("127.0.0.1:50051", token=minter.for_user("alice")) as toolbelay:
    prepared = await toolbelay.prepare(request, session_id="chat-1")   # an OpenAI or Anthropic request dict
    answer = await openai.chat.completions.create(**prepared.body)
```
"""

from toolbelay.client.aio import AsyncToolbelayClient
from toolbelay.client.calling import Tls
from toolbelay.client.errors import ToolbelayCallError
from toolbelay.client.minting import TokenMinter
from toolbelay.client.prepared import Prepared
from toolbelay.client.sync import ToolbelayClient

__all__ = [
    "AsyncToolbelayClient",
    "Prepared",
    "Tls",
    "TokenMinter",
    "ToolbelayCallError",
    "ToolbelayClient",
]
