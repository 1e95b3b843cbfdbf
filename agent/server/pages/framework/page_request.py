"""A request for a page, as the functions that read its data see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request

from agent.approvals.permission import Principal
from agent.core.scopes import Scope
from agent.server.context import Context, caller, context_of

Form = dict[str, str]


@dataclass(slots=True)
class PageRequest:
    """The address of a page and its viewer's scopes: viewers with the same scopes share a rendering."""

    context: Context
    path: str
    params: Mapping[str, str]
    """The parts of the path, as `task_id`."""
    query: Mapping[str, str]
    """The parameters; of a repeated one the last value, and `values` has all."""
    items: Sequence[tuple[str, str]]
    scopes: frozenset[Scope]
    _principal: Principal
    problem: str | None = None
    """Why the form that was sent was refused; shown at the top."""
    typed: Form = field(default_factory=dict)
    """The values of a form that was refused, so that nothing has to be typed again."""
    is_personal: bool = False
    """Whether the data depend on who looks: such a rendering is not shared."""

    @property
    def principal(self) -> Principal:
        """Who looks; reading it makes the rendering personal."""
        self.is_personal = True
        return self._principal

    def may(self, scope: Scope) -> bool:
        """Whether the viewer has a scope."""
        return scope in self.scopes

    def values(self, name: str) -> list[str]:
        """Return all values of a parameter."""
        return [value for key, value in self.items if key == name]

    def url(self, **changes: str | None) -> str:
        """Return this page's address with changed parameters; None removes one."""
        query = {name: value for name, value in (dict(self.query) | changes).items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path


def page_request(request: Request) -> PageRequest:
    """Return the page request in an HTTP request that has a session."""
    grant = caller(request)
    return PageRequest(
        context=context_of(request),
        path=request.url.path,
        params=request.path_params,
        query=dict(request.query_params),
        items=request.query_params.multi_items(),
        scopes=grant.scopes,
        _principal=grant.principal,
    )
