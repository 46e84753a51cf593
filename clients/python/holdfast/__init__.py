"""Locks of a Holdfast lock server.

    locks = Locks("http://127.0.0.1:7420")
    with locks.lock("invoice/42") as hold:
        hold.check()           # LostError as soon as the lock can be another's
        write(hold.token)      # the resource refuses tokens below the greatest that it saw

Numbers in comments are those of the rules in clients/README.md.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import http.client
import json
import os
import random
import ssl
import threading
import time
import urllib.parse
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

__all__ = ["Locks", "Lock", "Hold", "Error", "HeldError", "LostError", "RefusedError", "UnavailableError"]
_held: contextvars.ContextVar[Dict[Any, Hold]] = contextvars.ContextVar("holdfast", default={})


class Error(Exception):
    """The base of the errors of this package. code is the server's, or empty."""

    def __init__(self, text: str, code: str = "", answer: Any = None) -> None:
        super().__init__(text)
        self.code, self.answer = code, answer or {}


class HeldError(Error):
    """Others hold the lock; answer["holder"] may say who."""


class LostError(Error):
    """The hold has ended; code is the reason: expired, gone, max_hold, released, forked."""


class RefusedError(Error):
    """The servers refuse the request, or belong to different stores: the program has to be changed."""


class UnavailableError(Error):
    """No server has answered for a TTL."""


def _boottime() -> float:  # rule 8
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _background(call: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=call, args=args, daemon=True).start()


def _pause(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)


class Hold:
    """A lock that is held: until is its end on CLOCK_BOOTTIME, lost an event that comes with its loss."""

    def __init__(self, lock: Lock, id: str) -> None:
        self.name, self.ttl, self.id, self.token, self.until = lock.name, lock.ttl, id, 0, 0.0
        self.in_doubt, self.lost, self.reason = False, threading.Event(), ""
        self._lock, self._locks, self._pid, self._count = lock, lock._locks, os.getpid(), 1
        self._state, self._servers, self._next, self._granted = "asking", set(), 0.0, 0.0  # type: Any, Any, Any, Any
        self._asked = self._moved = self._resumes = False

    def _claim(self, c0: float, left_ms: int, now: float) -> bool:
        """Takes over the end of the claim that an answer tells, if it is later than the one before, and to come."""
        left = left_ms / 1000
        until = c0 + left - left / 100 - min(left / 100, 0.02)  # rule 3
        if not max(self.until, now) < until:  # rules 4 and 5
            return False
        self.until, self.in_doubt, self._next = until, False, max(c0, until - self.ttl) + self.ttl / 3  # rule 7
        return True

    def _expire(self) -> None:
        if self._state == "held" and self._locks._clock() >= self.until:
            self._locks._lose(self, "expired")  # rule 6

    def check(self) -> None:
        """Raises LostError if the lock may be another's by now. It compares clocks and does not block."""
        if self._pid != os.getpid():
            raise LostError(f"lock {self.name!r}: a forked process does not hold it", "forked")  # rule 2
        self._expire()
        if self._state != "held":
            why = self.reason or "released"
            raise LostError(f"lock {self.name!r}: the hold has ended: {why}", why)

    def release(self) -> str:
        """Gives the lock up: "released"; "lost" if the hold had ended before; "unknown" if no server answers
        in a third of the TTL, 5 s at most. A hold that was taken again inside of itself ends last."""
        if self._pid != os.getpid() or self._state == "released":
            return "released" if self._pid == os.getpid() else "lost"  # rule 2
        with self._locks._cond:
            self._count -= 1
            if self._count > 0:
                return "released"  # rule 13
        self._expire()
        return "lost" if self.reason else self._locks._end(self)


class Lock:
    """A lock to be taken, by `with`, `async with` or acquire. Locks.lock returns it."""

    def __init__(self, locks: Locks, name: str, wait: Optional[float], ttl: float, fields: Dict[str, Any],
                 on_loss: Callable[[Hold], Any], on_doubt: Callable[[Hold], Any]) -> None:
        self.name, self.wait, self.ttl, self.fields = name, wait, ttl, fields
        self.on_loss, self.on_doubt, self._locks = on_loss, on_doubt, locks
        self._key = (id(locks), name, fields.get("kind"))

    def acquire(self) -> Hold:
        """Waits for the lock, at most `wait` seconds, and returns it. It can be acquired again inside."""
        return self._nested() or self._locks._acquire(self, threading.Event(), [])

    def _nested(self) -> Optional[Hold]:
        hold = _held.get().get(self._key)
        if hold is None or hold._pid != os.getpid() or hold._state == "released":
            return None
        with self._locks._cond:
            hold.check()
            hold._count += 1  # rule 13
        return hold

    def _left(self, result: str, kind: Any) -> None:
        hold = _held.get()[self._key]
        if hold._count <= 0:
            _held.set({k: v for k, v in _held.get().items() if v is not hold})
        if result == "lost" and kind is None:
            why = hold.reason or "gone"
            raise LostError(f"lock {self.name!r}: the hold ended too early: {why}", why)

    def __enter__(self) -> Hold:
        _held.set({**_held.get(), self._key: self.acquire()})
        return _held.get()[self._key]

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._left(_held.get()[self._key].release(), kind)

    async def __aenter__(self) -> Hold:
        stop, asked = threading.Event(), []  # type: threading.Event, List[Hold]
        try:
            hold = self._nested() or await _threaded(lambda: self._locks._acquire(self, stop, asked))
            _held.set({**_held.get(), self._key: hold})
            return hold
        except asyncio.CancelledError:  # rule 10: the release overtakes the poll
            stop.set()
            _background(lambda: [self._locks._end(h) for h in asked[-1:]])
            raise

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        self._left(await asyncio.shield(_threaded(_held.get()[self._key].release)), kind)


async def _threaded(call: Callable[[], Any]) -> Any:
    """Runs call on a thread of its own, since locks that wait would fill the event loop's pool."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    done = asyncio.get_running_loop().run_in_executor(pool, call)
    pool.shutdown(wait=False)
    return await done


class Locks:
    """A client of lock servers over one store, safe for concurrent use. token: a bearer token, or a function
    that returns it; tls: by default a context that verifies; ttl: after it, the lock of a dead process is free."""

    def __init__(self, servers: Union[str, Sequence[str]], token: Union[None, str, Callable[[], str]] = None,
                 ttl: float = 30.0, tls: Optional[ssl.SSLContext] = None) -> None:
        self._urls = [urllib.parse.urlsplit(s) for s in ([servers] if isinstance(servers, str) else servers or [""])]
        for u in self._urls:
            if u.scheme not in ("http", "https") or not u.hostname or u.username or u.query or u.path.strip("/"):
                raise ValueError("server: an address is http://HOST:PORT or https://HOST:PORT")
            if token and u.scheme == "http" and u.hostname not in ("127.0.0.1", "::1", "localhost"):
                raise ValueError("server: a token travels by https:// only")  # rule 14
        self.ttl, self._token, self._tls, self._clock = ttl, token, tls, _boottime
        self._host, self._at, self._group, self._pid = os.uname().nodename, 0, "", 0
        self._born()

    def _born(self) -> None:
        if self._pid != os.getpid():  # rule 2: a forked process begins without holds
            self._pid, self._client, self._ids = os.getpid(), os.urandom(24).hex(), iter(range(1, 1 << 62))  # rule 1
            self._cond, self._running = threading.Condition(threading.RLock()), False
            self._holds: List[Hold] = []

    def lock(self, name: str, *, wait: Optional[float] = None, ttl: Optional[float] = None,
             on_loss: Callable[[Hold], Any] = id, on_doubt: Callable[[Hold], Any] = id, **fields: Any) -> Lock:
        """A lock to be taken. wait: seconds, None for ever, 0 not at all. on_loss and on_doubt are called once,
        each on a thread of its own. fields: kind, permits, of, note, pinned, max_hold_ms."""
        ttl = self.ttl if ttl is None else ttl
        return Lock(self, name, wait, ttl, {**fields, "ttl_ms": int(ttl * 1000)}, on_loss, on_doubt)

    def _bearer(self) -> Dict[str, str]:
        token = ((self._token() if callable(self._token) else self._token) or "").strip()  # a file ends with a new line
        if not all("!" <= c <= "~" for c in token):
            raise RefusedError("token: it has characters that a header cannot have", "token")
        return {"Authorization": "Bearer " + token} if token else {}

    def _send(self, at: int, path: str, body: bytes, limit: float) -> Tuple[int, Any, bytes]:
        u, bearer = self._urls[at], self._bearer()
        conn = http.client.HTTPConnection(u.hostname or "", u.port or 7420, timeout=limit)
        if u.scheme == "https":
            conn = http.client.HTTPSConnection(u.hostname or "", u.port or 7420, timeout=limit, context=self._tls)
        # The time-out of the connection is that of one read, and this of all.
        guard = threading.Timer(limit, lambda: conn.sock and conn.sock.shutdown(2))
        guard.start()
        try:
            conn.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close", **bearer})
            answer = conn.getresponse()
            if answer.length is None:
                raise OSError("an answer without a length may be truncated")
            return answer.status, answer.headers, answer.read()
        finally:
            guard.cancel()
            conn.close()

    def _ask(self, holds: Sequence[Hold], path: str, body: Any, limit: float) -> Tuple[float, int, Any]:
        """Sends a request: when, status, answer. Status 0: it is the next server's turn."""
        at, c0, answer, status = self._at, self._clock(), None, 0  # type: int, float, Any, int
        try:
            status, head, data = self._send(at, path, json.dumps(body).encode(), limit)
            answer = json.loads(data) if head.get("Holdfast") == "1" else None  # rule 11: else a proxy answered
        except (OSError, http.client.HTTPException, ValueError):
            pass
        ok = isinstance(answer, dict) and (status >= 300 or "group" in answer and "server" in answer)
        for h in holds:
            h._servers.add(answer.get("server", "") if ok else "")
            h._moved = h._moved or not ok or len(h._servers) > 1  # rule 9
        if ok and answer.get("group", self._group) != (self._group or answer["group"]):  # rule 12
            raise RefusedError(f"server {self._urls[at].netloc}: its store is not that of the server before", "group")
        if ok:
            self._group = self._group or answer.get("group", "")
        unserved = ok and any(e.get("status", 0) >= 500 or e.get("result") == "unknown"
                              for e in answer.get("holds", []))
        if (not ok or status >= 500 or unserved or answer.get("draining")) and self._at == at:
            self._at = (at + 1) % len(self._urls)  # rule 11
        return (c0, status, answer) if ok and status < 500 else (c0, 0, {})

    def _acquire(self, lock: Lock, stop: threading.Event, asked: List[Hold]) -> Hold:
        self._born()
        heard, missed, h = self._clock(), 0, self._fresh(lock, asked)
        end = heard + (1e9 if lock.wait is None else lock.wait)
        try:
            while True:
                wait = max(0.0, min(10.0, max(1.0, lock.ttl / 3), end - self._clock()))
                way: Dict[str, Any] = {"try": True} if lock.wait == 0 else {"wait_ms": int(wait * 1000)}
                h._asked = True
                c0, status, answer = self._ask([h], "/v1/acquire", self._body(h, way), wait + 5)
                now = self._clock()
                if stop.is_set():
                    raise asyncio.CancelledError
                heard, missed = (now, 0) if status else (heard, missed + 1)
                if status == 200 and answer.get("state") == "held":
                    if self._began(h, c0, now, answer):
                        return h
                    self._end(h)  # rule 5
                if status in (200, 410) or answer.get("code") == "id_in_use":
                    h = self._fresh(lock, asked)
                elif status not in (0, 202, 425, 429):
                    h._asked = h._moved  # without a missed answer, the server has no place of this id
                    code = answer.get("code", "")
                    error = HeldError if code == "held" else RefusedError
                    raise error(f"lock {lock.name!r}: {answer.get('detail') or code or status}", code, answer)
                if (status or missed >= len(self._urls)) and (now >= end or now - heard >= lock.ttl):
                    raise (HeldError(f"lock {lock.name!r}: the wait is over", "held", answer) if status
                           else UnavailableError(f"lock {lock.name!r}: no server answers"))
                if status not in (202, 410, 200):
                    time.sleep(_pause(min(1.0, lock.ttl / 20)))
        finally:
            if h._state == "asking" and h._asked:
                self._end(h)  # rule 10

    def _fresh(self, lock: Lock, asked: List[Hold]) -> Hold:
        asked.append(Hold(lock, f"{self._client}.{next(self._ids)}"))  # rule 1
        return asked[-1]

    def _body(self, h: Hold, more: Dict[str, Any]) -> Dict[str, Any]:
        body = {"id": h.id, "name": h.name, **h._lock.fields, "host": self._host, "pid": os.getpid(), **more}
        if h._granted and "max_hold_ms" in body:  # what is left of it
            body["max_hold_ms"] = max(1, body["max_hold_ms"] - int((self._clock() - h._granted) * 1000))
        return body

    def _began(self, h: Hold, c0: float, now: float, answer: Any) -> bool:
        with self._cond:
            if h._state != "asking" or not h._claim(c0, answer["left_ms"], now):
                return False
            h._state, h.token, h._granted = "held", answer["token"], now
            self._holds.append(h)
            self._cond.notify()
            if not self._running:
                _background(lambda: all(iter(self._run_once, False)))  # until there are no holds
            self._running = True
            return True

    def _run_once(self, most: float = 60.0) -> bool:
        """Renews what is due, and tells doubts and losses. False: there are no holds."""
        with self._cond:
            now = self._clock()
            for h in list(self._holds):
                h._expire()
                if not h.in_doubt and h.until - h.ttl / 4 <= now < h.until:
                    h.in_doubt = True  # rule 17
                    _background(h._lock.on_doubt, h)
            soon = any(h._next <= now for h in self._holds)  # what is due soon travels with it
            due = [h for h in self._holds if soon and h._next <= now + h.ttl / 20][:100]  # rule 15
            for h in due:
                h._next = 1e18  # until _renew has an answer
            if due:
                _background(self._renew, due)
            at = [min(h._next, h.until if h.in_doubt else h.until - h.ttl / 4) for h in self._holds]
            self._running = bool(at)
            return self._running and (self._cond.wait(max(0.0, min(most, min(at) - now))) or True)

    def _renew(self, due: List[Hold]) -> None:
        limit = min(5.0, max(0.05, min(h.ttl for h in due) / 6))  # rule 7
        try:
            known = [h for h in due if not h._resumes]
            ids = {"holds": [h.id for h in known]}
            sent, status, answer = self._ask(known, "/v1/renew", ids, limit) if known else (0.0, 0, {})
            entries = answer["holds"] if status == 200 else []
            for h, e in [*zip(known, entries), *((h, {"code": "unknown_hold"}) for h in due if h._resumes)]:
                c0 = sent
                if e.get("code") == "unknown_hold" or e.get("state") == "waiting":  # rule 18: resume, never a new grant
                    c0, _, e = self._ask([h], "/v1/acquire", self._body(h, {"resume": h.token, "wait_ms": 0}), limit)
                    h._resumes = e.get("state") != "held"
                self._answered(h, c0, e)
        except RefusedError:
            pass
        finally:
            with self._cond:
                for h in due:
                    if h._next > 1e17 or h._next <= self._clock():
                        h._next = self._clock() + _pause(h.ttl / 20)
                self._cond.notify()

    def _answered(self, h: Hold, c0: float, e: Any) -> None:
        """Believes an answer to a renewal, or does not."""
        with self._cond:
            now, ours = self._clock(), e.get("state") == "held" and e.get("token") == h.token
            if ours and h._state == "held" and now < h.until:  # rule 6
                h._claim(c0, e["left_ms"], now)
                return
        if e.get("state") == "held" and h._state != "released" or e.get("code") in ("lost", "released"):
            self._lose(h, e.get("reason") or ("expired" if ours else e.get("code", "gone")))
            if e.get("state") == "held":
                self._end(h)  # rule 6: the loss is final

    def _lose(self, h: Hold, reason: str) -> None:
        with self._cond:
            if h._state != "held":
                return
            h._state, h.reason = "lost", reason
            self._holds.remove(h)
        h.lost.set()
        _background(self._end, h)
        _background(h._lock.on_loss, h)

    def _end(self, h: Hold) -> str:
        """Releases an id, wherever it stands (rules 9, 10 and 16)."""
        with self._cond:
            if h._state == "held":
                self._holds.remove(h)
            if h._state != "lost":
                h._state = "released"
        limit = min(5.0, h.ttl / 3)
        end = self._clock() + limit
        while self._clock() < end:
            try:
                body = {"holds": [{"id": h.id, "name": h.name, "moved": h._moved}]}
                _, status, answer = self._ask([h], "/v1/release", body, min(max(0.05, limit / 2), end - self._clock()))
            except RefusedError:
                break
            result = answer["holds"][0].get("result", "") if status == 200 else ""
            if result == "released" or result == "gone" and h._moved:
                return "released"
            if result == "gone":
                h.reason = h.reason or "gone"
                return "lost"
            time.sleep(_pause(h.ttl / 20))
        return "unknown"
