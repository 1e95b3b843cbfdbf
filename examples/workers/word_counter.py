"""An external worker: claims the steps of the queue `word_counter`, from any machine.

    AGENT_SERVER=http://127.0.0.1:8420 AGENT_TOKEN=… python3 word_counter.py

It needs only the package `agent`, no configuration and no database.
"""

from agent.queue import Final, Work, Worker, handler


@handler("word_counter")
def count(work: Work) -> dict[str, int]:
    """Count the words of a text; an empty one is a matter for a person."""
    text = work.input["text"]
    if not isinstance(text, str):
        raise Final("text must be a text")
    words = text.split()
    work.log(f"attempt {work.attempt}: {len(words)} words")
    if not words and work.ask("The text is empty. Is that right?", choices=["yes", "no"]) == "no":
        raise Final("the text should not be empty")
    return {"words": len(words)}


if __name__ == "__main__":
    Worker(count, concurrency=4).run()
