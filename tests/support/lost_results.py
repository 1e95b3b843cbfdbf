"""Calls that happened and whose results were never recorded, as after a crash between the two."""

from tests.support.attempt import Trial


def lose_result(made: Trial, action: str) -> None:
    """Lose the last result of an action, and everything that was recorded after it."""
    intents = made.journal.intents
    place = max(
        number for number, (_, intent) in enumerate(intents) if intent.action.startswith(action)
    )
    lost = {intent.call_id for _, intent in intents[place:]}
    del intents[place + 1 :]
    made.journal.results[:] = [
        result for result in made.journal.results if result.call_id not in lost
    ]
    made.crash()
