"""Locks of a Holdfast lock server. Comments number the rules of clients/README.md.

    locks = Locks("http://127.0.0.1:7420")
    with locks.lock("invoice/42") as hold:
        hold.check()           # LostError as soon as the lock can be another's
        write(hold.token)      # the resource refuses tokens below the greatest that it saw
"""
from __future__ import annotations

import contextlib
import contextvars
import http.client
import json
import os
import random
import ssl
import threading
import time
import urllib.parse
from itertools import count
from typing import Any, Callable, Iterator, Sequence

_held: contextvars.ContextVar[dict[Any, Hold]] = contextvars.ContextVar("holdfast", default={})


class Error(Exception):
    """The base of the errors. code is the server's, or the reason of a loss."""

    def __init__(self, text: str, code: str = "", answer: Any = None) -> None:
        super().__init__(text)
        self.code, self.answer = code, answer or {}


class HeldError(Error):
    """Others hold the lock; answer["holder"] may say who."""


class LostError(Error):
    """The hold has ended: expired, gone, max_hold, released or forked."""


class RefusedError(Error):
    """The servers refuse the request, or have different stores."""


class UnavailableError(Error):
    """No server has answered for a TTL."""


def _boottime() -> float:  # rule 8
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _background(call: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=call, args=args, daemon=True).start()


class Hold:
    """A lock that is held: until is its end on CLOCK_BOOTTIME, lost an event of its loss."""

    def __init__(self, locks: Locks, name: str, wait: float | None = None, ttl: float | None = None,
                 on_loss: Callable[[Hold], Any] = id, on_doubt: Callable[[Hold], Any] = id,
                 **fields: Any) -> None:
        self.name, self.ttl, self.id = name, ttl or locks.ttl, locks._fresh_id()
        self.token, self.until, self.in_doubt, self.reason = 0, 0.0, False, ""
        self._locks, self._wait, self._fields = locks, 1e9 if wait is None else wait, fields
        self._on_loss, self._on_doubt, self._pid, self._count = on_loss, on_doubt, os.getpid(), 1
        self._state, self._server, self._next, self._granted = "asking", "", 0.0, 0.0
        self._moved = self._resumes = False
        self._mutex, self._over, self.lost = threading.RLock(), threading.Event(), threading.Event()

    def _claim(self, c0: float, left: float, now: float) -> bool:
        """Takes over the end of a claim that an answer tells, if it is later and to come."""
        until = c0 + left - left / 100 - min(left / 100, 0.02)  # rule 3
        if until <= max(self.until, now):  # rules 4 and 5
            return False
        self.until, self.in_doubt = until, False
        self._next = max(c0, until - self.ttl) + self.ttl / 3  # rule 7
        return True

    def _lose(self, reason: str) -> None:
        with self._mutex:
            if self._state != "held":
                return
            self._state, self.reason = "lost", reason
        self.lost.set()
        self._over.set()
        _background(self._locks._end, self)
        _background(self._on_loss, self)

    def _why(self) -> str:
        """Returns the reason if the hold has ended."""
        if self._pid != os.getpid():
            return "forked"  # rule 2
        if self._state == "held" and self._locks._clock() >= self.until:
            self._lose("expired")  # rule 6
        return "" if self._state == "held" else self.reason or "released"

    def check(self) -> None:
        """Raises LostError if the lock may be another's by now. It does not block."""
        why = self._why()
        if why:
            raise LostError(f"lock {self.name!r}: the hold has ended: {why}", why)

    def release(self) -> str:
        """Gives the lock up in TTL/3, 5 s at most: "released"; "lost" if the hold had ended
        before; "unknown" if no server answers. A lock taken again inside ends last."""
        why = self._why()
        if why == "forked":
            return "lost"
        with self._mutex:
            self._count -= 1
            if self._state == "released" or self._count > 0 and not why:
                return "released"  # rule 13
            self._state = "lost" if self._state == "lost" else "released"
        self._over.set()
        return "lost" if why else self._locks._end(self)


class Locks:
    """A client of lock servers over one store, safe for concurrent use. token: a bearer token,
    or a function that returns it; ttl: after it, the lock of a dead process is free."""

    def __init__(self, servers: str | Sequence[str], token: None | str | Callable[[], str] = None,
                 ttl: float = 30.0, tls: ssl.SSLContext | None = None) -> None:
        servers = [servers] if isinstance(servers, str) else servers or [""]
        self._urls = []
        for u in map(urllib.parse.urlsplit, servers):
            host, extra = u.hostname or "", u.username or u.query or u.path.strip("/")
            if u.scheme not in ("http", "https") or not host or extra:
                raise ValueError("server: an address is http://HOST:PORT or https://HOST:PORT")
            if token and u.scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
                raise ValueError("server: a token travels by https:// only")  # rule 14
            self._urls.append((u.scheme, host, u.port or 7420))
        self.ttl, self._token, self._tls, self._clock = ttl, token, tls, _boottime
        self._at, self._group, self._pid = 0, "", 0

    def _fresh_id(self) -> str:
        if self._pid != os.getpid():  # rule 2: a forked process is another client
            self._pid, self._client, self._tries = os.getpid(), os.urandom(24).hex(), count(1)
        return f"{self._client}.{next(self._tries)}"  # rule 1

    def acquire(self, name: str, **options: Any) -> Hold:
        """Waits for a lock and returns it. Options: wait (seconds, None for ever, 0 not at all),
        ttl, on_loss and on_doubt (functions of the hold, called once, on threads of their own),
        and the request's kind, permits, of, note, pinned, max_hold_ms."""
        hold = _held.get().get((self, name, options.get("kind")))
        if hold is None or hold._why() in ("forked", "released"):
            return self._acquire(Hold(self, name, **options))
        hold.check()
        with hold._mutex:
            hold._count += 1  # rule 13
        return hold

    @contextlib.contextmanager
    def lock(self, name: str, **options: Any) -> Iterator[Hold]:
        """Holds a lock inside of `with`. The options are those of acquire."""
        hold = self.acquire(name, **options)
        outside = _held.set({**_held.get(), (self, name, options.get("kind")): hold})
        try:
            yield hold
        finally:
            _held.reset(outside)
            result = hold.release()
        if result == "lost":
            why = hold.reason or "gone"
            raise LostError(f"lock {name!r}: the hold ended too early: {why}", why)

    def _send(self, at: int, path: str, body: bytes, limit: float) -> tuple[int, Any, bytes]:
        token = ((self._token() if callable(self._token) else self._token) or "").strip()
        if not all("!" <= c <= "~" for c in token):
            raise RefusedError("token: it has characters that a header cannot have", "token")
        head = {"Authorization": "Bearer " + token} if token else {}
        scheme, host, port = self._urls[at]
        conn = (http.client.HTTPSConnection(host, port, timeout=limit, context=self._tls)
                if scheme == "https" else http.client.HTTPConnection(host, port, timeout=limit))
        # The time-out of the connection is that of one read, and this of all.
        guard = threading.Timer(limit, lambda: conn.sock and conn.sock.shutdown(2))
        guard.start()
        try:
            conn.request("POST", path, body, {**head, "Content-Type": "application/json"})
            answer = conn.getresponse()
            if answer.length is None:
                raise OSError("an answer without a length may be truncated")
            return answer.status, answer.headers, answer.read()
        finally:
            guard.cancel()
            conn.close()

    def _ask(self, h: Hold, path: str, body: Any, limit: float) -> tuple[float, int, Any]:
        """Asks a server about a hold: when, status, answer. Status 0: ask the next one."""
        at, c0, status, answer = self._at, self._clock(), 0, {}  # type: int, float, int, Any
        try:
            status, head, data = self._send(at, path, json.dumps(body).encode(), limit)
            answer = json.loads(data) if head.get("Holdfast") == "1" else {}  # rule 11
            answer.update(*answer.pop("holds", []))  # a batch of one
        except (OSError, http.client.HTTPException, ValueError, AttributeError, TypeError):
            answer = {}
        server, status = answer.get("server", ""), answer.get("status", status)
        h._server = h._server or server
        h._moved = h._moved or not server or server != h._server  # rule 9
        group = answer.get("group", self._group)
        if group != (self._group or group):  # rule 12
            raise RefusedError(f"server {self._urls[at][1]}: it has another store", "group")
        self._group = group
        away = not server or status >= 500 or answer.get("result") == "unknown"
        if (away or answer.get("draining")) and self._at == at:
            self._at = (at + 1) % len(self._urls)  # rule 11
        return (c0, 0, {}) if away else (c0, status, answer)

    def _body(self, h: Hold, **more: Any) -> dict[str, Any]:
        body = {"id": h.id, "name": h.name, "ttl_ms": int(h.ttl * 1000), **h._fields, **more,
                "host": os.uname().nodename, "pid": h._pid}
        if h._granted and "max_hold_ms" in body:  # what is left of it
            body["max_hold_ms"] -= int((self._clock() - h._granted) * 1000)
        return body

    def _acquire(self, h: Hold) -> Hold:
        heard, missed = self._clock(), 0
        end = heard + h._wait
        try:
            while True:
                rest = max(0.0, min(10.0, max(1.0, h.ttl / 3), end - self._clock()))
                way = {"wait_ms": int(rest * 1000)} if h._wait else {"try": True}
                c0, status, answer = self._ask(h, "/v1/acquire", self._body(h, **way), rest + 5)
                now, code = self._clock(), answer.get("code", "")
                heard, missed = (now, 0) if status else (heard, missed + 1)
                if status == 200 and h._claim(c0, answer["left_ms"] / 1000, now):
                    h._state, h.token, h._granted = "held", answer["token"], now
                    _background(self._keep, h)
                    return h
                if status == 200:
                    self._end(h)  # rule 5
                if status in (200, 410) or code == "id_in_use":
                    h.id, h._server, h._moved = self._fresh_id(), "", False
                elif status not in (0, 202, 425, 429):
                    h._state = "asking" if h._moved else "refused"  # it may have a place elsewhere
                    error = HeldError if code == "held" else RefusedError
                    raise error(f"lock {h.name!r}: {answer.get('detail', code)}", code, answer)
                if now >= end or now - heard >= h.ttl:
                    if status:
                        raise HeldError(f"lock {h.name!r}: the wait is over", "held", answer)
                    if missed >= len(self._urls):
                        raise UnavailableError(f"lock {h.name!r}: no server answers")
                if status not in (200, 202, 410):
                    time.sleep(min(1.0, h.ttl / 20) * random.uniform(0.5, 1.5))
        finally:
            if h._state == "asking":
                self._end(h)  # rule 10

    def _keep(self, h: Hold) -> None:
        """Renews a hold until it ends, and tells its doubt and its loss."""
        while not h._why():
            now, doubt = self._clock(), h.until - h.ttl / 4
            if not h.in_doubt and now >= doubt:
                h.in_doubt = True  # rule 17
                _background(h._on_doubt, h)
            if now >= h._next:
                self._renew(h)
            else:
                h._over.wait(min(h._next, h.until if h.in_doubt else doubt) - now)

    def _renew(self, h: Hold) -> None:
        limit = min(5.0, max(0.05, h.ttl / 6), h.until - self._clock())  # rule 7
        c0, status, answer = 0.0, 0, {}  # type: float, int, Any
        with contextlib.suppress(RefusedError):
            if not h._resumes:
                c0, status, answer = self._ask(h, "/v1/renew", {"holds": [h.id]}, limit)
                told = answer.get("code", answer.get("state"))
                h._resumes = told in ("unknown_hold", "waiting")  # rule 18
            if h._resumes:
                body = self._body(h, resume=h.token, wait_ms=0)
                c0, status, answer = self._ask(h, "/v1/acquire", body, limit)
                h._resumes = answer.get("state") != "held"
        now, held = self._clock(), answer.get("state") == "held"
        if h._why():
            if held and h._state == "lost":
                self._end(h)  # rule 6: the loss is final
        elif held and answer.get("token") == h.token:
            h._claim(c0, answer["left_ms"] / 1000, now)
        elif held or status == 410:
            h._lose(answer.get("reason", "gone"))
        h._next = h._next if h._next > now else now + h.ttl / 20 * random.uniform(0.5, 1.5)

    def _end(self, h: Hold) -> str:
        """Releases an id, wherever it stands (rules 9, 10 and 16)."""
        limit = min(5.0, h.ttl / 3)
        end = self._clock() + limit
        with contextlib.suppress(RefusedError):
            while self._clock() < end:
                rest = min(max(0.05, limit / 2), end - self._clock())
                body = {"holds": [{"id": h.id, "name": h.name, "moved": h._moved}]}
                result = self._ask(h, "/v1/release", body, rest)[2].get("result")
                if result == "released" or result == "gone" and h._moved:
                    return "released"
                if result == "gone":
                    h.reason = h.reason or "gone"
                    return "lost"
                time.sleep(h.ttl / 20 * random.uniform(0.5, 1.5))
        return "unknown"
