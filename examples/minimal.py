"""One turn of a chat, with the tools that Toolbelay chose; needs a running service and its token."""

import os

from toolbelay.client import ToolbelayClient


def main() -> None:
    """Print the names of the tools that go with the request."""
    request = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
    address = os.environ.get("TOOLBELAY_ADDRESS", "127.0.0.1:50051")
    with ToolbelayClient(address, token=os.environ["TOOLBELAY_TOKEN"], timeout=5) as toolbelay:
        prepared = toolbelay.prepare(request, session_id="readme")
        print(*(tool["function"]["name"] for tool in prepared.body.get("tools", [])))
        # Send it on: with the provider's SDK, `client.chat.completions.create(**prepared.body)`.


if __name__ == "__main__":
    main()
