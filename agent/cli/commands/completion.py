"""`agent completion`: completion for shells."""

import os
from pathlib import Path
from typing import Annotated

from agent.cli.errors import CommandError
from agent.cli.parameters import Argument, Option

_BASH = """\
# Completion of `agent` for bash.
_agent() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = ":files" ]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done \\
                < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
        else
            COMPREPLY+=("${line%%$'\\t'*}")
        fi
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _agent agent
"""

_ZSH = """\
#compdef agent
# Completion of `agent` for zsh.
_agent() {
    local line takes_files found=1
    local -a values
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == ":files" ]]; then
            takes_files=1
        elif [[ $line == *$'\\t'?* ]]; then
            values+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        elif [[ -n $line ]]; then
            values+=("${${line%%$'\\t'*}//:/\\\\:}")
        fi
    done
    (( $#values )) && _describe -V agent values && found=0
    [[ -n $takes_files ]] && _files && found=0
    return found
}
if [[ ${funcstack[1]} == _agent ]]; then _agent "$@"; else compdef _agent agent; fi
"""

_FISH = """\
# Completion of `agent` for fish.
function __agent_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c agent -f -a '(__agent_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[str, Argument(metavar="SHELL", help="bash, zsh or fish.")],
    *,
    install: Annotated[
        bool, Option("--install", help="Write it to where the shell looks for it.")
    ] = False,
) -> None:
    """Print or install completion for bash, zsh or fish.

    It knows commands and options, and the tasks, steps, workflows, questions, schedules and watchers
    of the agent. To try it: `source <(agent completion bash)`.
    """
    from agent.cli.output import terminal

    if shell not in SCRIPTS:
        raise CommandError(f"there is no completion for {shell!r}: use bash, zsh or fish")
    if not install:
        print(SCRIPTS[shell], end="")
        return
    path = _place(shell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPTS[shell], encoding="utf-8")
    terminal.print_line(f"wrote {path}; new shells use it")
    if shell == "bash":
        terminal.print_line("it needs the package bash-completion")
    if shell == "zsh":
        terminal.print_line("~/.zshrc needs these two lines, unless it has them:")
        terminal.print_line(f"  fpath+=({path.parent})")
        terminal.print_line("  autoload -Uz compinit && compinit")


def _place(shell: str) -> Path:
    """Return the file in which a shell looks for the completion of `agent`."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    if shell == "bash":
        return data / "bash-completion" / "completions" / "agent"
    if shell == "zsh":
        return data / "zsh" / "site-functions" / "_agent"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return config / "fish" / "completions" / "agent.fish"
