"""`app.sessions`: list, create and end sessions of the dashboard, with a cache of recently read ones."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from trax.app.lists import RecordLists
from trax.engine.actor import acting, record_audit
from trax.errors import InvalidArgument, StoreError
from trax.records.audit import Actor, Via
from trax.records.nouns import SESSIONS
from trax.schedule.validate import TEXT, check_names, validate_ids
from trax.store import web_sessions
from trax.store.web_sessions import StoredSession

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Unpack

    from trax.records.audit import NewWebSession, WebSession
    from trax.records.listing import Count, RecordPage
    from trax.records.nouns import SessionFilter, SessionKeywords
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext

logger = logging.getLogger(__name__)

NOUN: Final = "session"
LINK_LIFETIME: Final = timedelta(hours=1)
MARK_SEEN_EVERY: Final = timedelta(minutes=1)
"""Minimum time between two updates of a session's last_seen_at."""
FRESH_SECONDS: Final = 3.0
"""Cache time: a session that another process ended may be valid here for this long."""
MAX_CACHED_SESSIONS: Final = 1_000
MOST_FAILURES: Final = 200
SECONDS_PER_FAILURE: Final = 30.0
UNAUTHENTICATED: Final = "unauthenticated"


class Sessions:
    """Browsers that are signed in, one row each. Only the browser has the secret."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, SESSIONS, web_sessions.SESSIONS, needs_now=True)
        self.cache = SessionCache()
        self._failures = FailureBudget()

    async def list(self, **keywords: Unpack[SessionKeywords]) -> list[WebSession]:
        """List sessions, newest first. For the next page, pass the last id as `before`."""
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[SessionKeywords]) -> RecordPage[WebSession]:
        """Like `list`, with cursors for the pages before and after."""
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Unpack[SessionFilter]) -> Count:
        """Count sessions that have not expired."""
        return await self._lists.count(filters, quick=quick)

    async def end(self, ids: Iterable[int]) -> list[int]:
        """End these sessions; returns the ids of those that existed."""
        return await self._end(_end_ids, validate_ids(ids))

    async def end_all(self, *, user: str | None = None) -> list[int]:
        """End all sessions, or all of one user; returns their ids."""
        check_names(user=user)
        return await self._end(_end_all, user)

    async def create_link(self) -> str:
        """A token that signs one browser in, once and within an hour, where no access is configured.

        Open it as `http://127.0.0.1:8080/login?token=…`.
        """
        token = secrets.token_urlsafe(32)
        store = await self._store.open()
        await store.call(_insert_link, store, digest(token))
        return token

    async def begin(self, new: NewWebSession, *, times: SessionTimes, replaces: str | None) -> WebSession:
        """Sign a browser in. `replaces` is the secret of its previous session, which ends."""
        store = await self._store.open()
        session = await store.call(_insert_session, store, new, times, digest(replaces or ""))
        self.cache.clear()
        return session

    async def begin_by_link(
        self, token: str, new: NewWebSession, *, times: SessionTimes
    ) -> WebSession | None:
        """Sign a browser in that opened a link; None if the link was used or has expired."""
        store = await self._store.open()
        return await store.call(_claim_link, store, digest(token), new, times)

    async def record_failure(self, failure: FailedSignIn) -> None:
        """Write a failed sign-in to the audit, unless there were too many: then the next entry counts it."""
        if not isinstance(cast("Any", failure), FailedSignIn):
            raise InvalidArgument("failure", "a FailedSignIn", failure)
        count = self._failures.take()
        if not count:
            return
        try:
            store = await self._store.open()
            await store.call(_record_failure, store, failure, count)
        except StoreError as error:
            logger.warning("dashboard: a failed sign-in is not in the audit: %s", error)

    async def find(
        self, secret: str, *, times: SessionTimes | None = None, is_use: bool = True
    ) -> StoredSession | None:
        """The session with this secret. Called for every request, so cached.

        A use prolongs it, within `times`; requests that a page makes by itself are none.
        """
        key = digest(secret)
        known, store = self.cache.get(key), await self._store.open()
        if known is None:
            version = self.cache.version
            known = self.cache.put(key, await store.ask(_load, store, key), version)
        if known.session is not None and known.needs_seen_mark and is_use:
            self.cache.note_seen(key)
            await _mark_seen(store, known.session.session, times)
        return known.session

    async def _end(self, verb: Callable[..., list[int]], selection: object) -> list[int]:
        store = await self._store.open()
        try:
            return await store.call(verb, store, selection)
        finally:
            self.cache.clear()


def digest(secret: str) -> str:
    """The hash that is stored for a secret. The secret is long and random, so no salt is needed."""
    return sha256(TEXT("a session's secret", secret).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class _CachedSession:
    session: StoredSession | None
    needs_seen_mark: bool
    until: float


@dataclass(frozen=True, slots=True)
class _LoadedSession:
    session: StoredSession
    needs_seen_mark: bool


class SessionTimes(NamedTuple):
    """How long sessions last: at most `lifetime`, and `idle` without a use."""

    lifetime: timedelta
    idle: timedelta | None = None

    def end(self, created_at: datetime, used_at: datetime) -> datetime:
        end = created_at + self.lifetime
        return end if self.idle is None else min(end, used_at + self.idle)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSignIn:
    """A failed sign-in. `user` is None for an unknown name: people type passwords there by mistake."""

    why: str
    address: str
    user: str | None = None


@dataclass(slots=True)
class FailureBudget:
    """How many failed sign-ins may be written: many at once, then one in a while. Strangers cause them."""

    clock: Callable[[], float] = time.monotonic
    _left: float = MOST_FAILURES
    _at: float | None = None
    _omitted: int = 0

    def take(self) -> int:
        """How many failures the next entry stands for; 0 if this one is not to be written."""
        now = self.clock()
        passed = 0.0 if self._at is None else now - self._at
        self._left = min(float(MOST_FAILURES), self._left + passed / SECONDS_PER_FAILURE)
        self._at = now
        if self._left < 1:
            self._omitted += 1
            return 0
        count, self._omitted = self._omitted + 1, 0
        self._left -= 1
        return count


@dataclass(slots=True)
class SessionCache:
    """Sessions read in the last seconds, so that the requests of one page need one query."""

    clock: Callable[[], float] = time.monotonic
    version: int = 0
    _sessions: dict[str, _CachedSession] = field(default_factory=dict[str, _CachedSession])

    def get(self, key: str) -> _CachedSession | None:
        known = self._sessions.get(key)
        return known if known is not None and self.clock() < known.until else None

    def put(self, key: str, found: _LoadedSession | None, version: int) -> _CachedSession:
        """Cache a session, unless one was ended since `version`: it may be this one."""
        until = self.clock() + FRESH_SECONDS
        cached = (
            _CachedSession(None, needs_seen_mark=False, until=until)
            if found is None
            else _CachedSession(found.session, found.needs_seen_mark, until)
        )
        if version == self.version:
            if len(self._sessions) >= MAX_CACHED_SESSIONS:
                self._sessions.clear()
            self._sessions[key] = cached
        return cached

    def note_seen(self, key: str) -> None:
        """Its use is being written: the next requests need not write it again."""
        if key in self._sessions:
            self._sessions[key] = replace(self._sessions[key], needs_seen_mark=False)

    def clear(self) -> None:
        self.version += 1
        self._sessions.clear()


def _load(connection: Connection, store: Store, key: str) -> _LoadedSession | None:
    now = store.now(connection)
    found = web_sessions.load(connection, key, now=now)
    return (
        None if found is None else _LoadedSession(found, now - found.session.last_seen_at >= MARK_SEEN_EVERY)
    )


async def _mark_seen(store: Store, session: WebSession, times: SessionTimes | None) -> None:
    """Write the use of a session; a failure must not fail the request."""
    try:
        await store.call(_write_seen, store, session, times)
    except StoreError:
        return


def _write_seen(
    connection: Connection, store: Store, session: WebSession, times: SessionTimes | None
) -> None:
    now = store.now(connection)
    expires_at = session.expires_at if times is None else times.end(session.created_at, now)
    web_sessions.mark_seen(connection, session.id, now=now, expires_at=expires_at)


def _insert_session(
    connection: Connection, store: Store, new: NewWebSession, times: SessionTimes, replaced: str
) -> WebSession:
    web_sessions.delete_key(connection, replaced)
    return _begin(connection, new, store.now(connection), times)


def _insert_link(connection: Connection, store: Store, key: str) -> None:
    now = store.now(connection)
    web_sessions.insert_link(connection, key, now=now, lifetime=LINK_LIFETIME)
    record_audit(connection, "sessions.create_link", NOUN, [], now=now, count=1)


def _claim_link(
    connection: Connection, store: Store, key: str, new: NewWebSession, times: SessionTimes
) -> WebSession | None:
    now = store.now(connection)
    if not web_sessions.redeem_link(connection, key, now=now):
        return None
    return _begin(connection, new, now, times)


def _begin(connection: Connection, new: NewWebSession, now: datetime, times: SessionTimes) -> WebSession:
    session = web_sessions.insert_session(connection, new, now=now, expires_at=times.end(now, now))
    with acting(Actor(new.user, Via.DASHBOARD)):
        after = {"user": new.user, "means": new.means, "address": new.address}
        record_audit(connection, "sessions.begin", NOUN, [session.id], now=now, after=after)
    return session


def _record_failure(connection: Connection, store: Store, failure: FailedSignIn, count: int) -> None:
    now = store.now(connection)
    ids = () if failure.user is None else (failure.user,)
    with acting(Actor(UNAUTHENTICATED, Via.DASHBOARD)):
        after = {"why": failure.why, "address": failure.address}
        record_audit(connection, "sessions.refuse", NOUN, ids, now=now, count=count, after=after)


def _end_ids(connection: Connection, store: Store, ids: list[int]) -> list[int]:
    ended = web_sessions.delete_ids(connection, ids)
    record_audit(connection, "sessions.end", NOUN, ended, now=store.now(connection))
    return ended


def _end_all(connection: Connection, store: Store, user: str | None) -> list[int]:
    ended = web_sessions.delete_all(connection, user=user)
    after = {} if user is None else {"user": user}
    record_audit(connection, "sessions.end_all", NOUN, ended, now=store.now(connection), after=after or None)
    return ended
