"""`agent memory`: what people see of what agents remember, and what they change."""

from tests.support.cli import Cli


def test_memories_are_added_listed_searched_shown_and_forgotten(cli: Cli) -> None:
    """Each command says what it did; `--json` has the same documents as the API."""
    cli("db", "upgrade")
    assert "no memories yet" in cli("memory").out
    added = cli("memory", "add", "Anna's dentist is Dr. Müller", "--scope", "personal").out
    assert "memory 1 in personal" in added and "by terminal:" in added
    cli("memory", "add", "-", "--scope", "workflow:helper", given="明日の天気\n")
    listed = cli("memory", "--json").json
    assert [each["text"] for each in listed] == ["明日の天気", "Anna's dentist is Dr. Müller"]
    table = cli("memory", "list", "--scope", "personal").out.splitlines()
    assert table[0].split() == ["id", "scope", "since", "text"]
    assert len(table) == 2 and "Müller" in table[1]
    assert "Müller" in cli("memory", "search", "müll").out
    assert [each["id"] for each in cli("memory", "search", "天", "--json").json] == [2]
    assert "nothing was found" in cli("memory", "search", "plumber").out
    assert "forgot 1: Anna's dentist" in cli("memory", "forget", "1").out
    assert "nothing was found" in cli("memory", "search", "müll").out
    assert "(forgotten)" in cli("memory", "--forgotten").out
    assert "forgotten:" in cli("memory", "show", "1").out
    assert "forgotten already" in cli("memory", "forget", "1", code=3).err
    assert "there is no memory 9" in cli("memory", "show", "9", code=3).err
    assert "nothing to remember" in cli("memory", "add", " ", "--scope", "s", code=3).err
    assert "1 forgotten memories" in cli("db", "prune", "--days", "0").out
    assert "there is no memory 1" in cli("memory", "show", "1", code=3).err
    lines = (cli.directory / "data" / "audit.jsonl").read_text()
    assert '"add memory"' in lines and '"forget memory"' in lines
    assert "Müller" not in lines


def test_a_secret_of_the_configuration_is_redacted(cli: Cli) -> None:
    """What the configuration names by reference does not get into a memory from here either."""
    cli.write("secret.txt", "s3cret-value-123\n")
    cli.write("config.toml", '[models.m]\nprovider = "anthropic"\nkey = "file:secret.txt"\n')
    cli("db", "upgrade")
    cli("memory", "add", "the key is s3cret-value-123", "--scope", "s")
    assert cli("memory", "--json").json[0]["text"] == "the key is [redacted]"
