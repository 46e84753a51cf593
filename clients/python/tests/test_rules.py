"""The rules of clients/README.md, by number, with a clock and answers that the tests set."""
import json
import os
import threading
import unittest
from unittest import mock
from typing import Any, Callable, List

import holdfast
from holdfast import HeldError, Hold, Locks, LostError, RefusedError, UnavailableError

GROUP = {"server": "a.1", "group": "00000001"}


class World:
    """A client whose requests answer() answers, and whose clock only answers move."""

    def __init__(self, answer: Callable[[str, Any], Any], servers: int = 2, ttl: float = 10.0) -> None:
        self.now, self.asked, self.answer = 1000.0, [], answer  # type: float, List[Any], Callable[[str, Any], Any]
        self.locks = Locks([f"http://127.0.0.1:{7420 + n}" for n in range(servers)], ttl=ttl)
        self.locks._clock = lambda: self.now
        self.locks._send = self.send  # type: ignore
        self.locks._keep = lambda h: None  # type: ignore # the tests call what it calls
        holdfast.time.sleep, self.sleep = self.pause, holdfast.time.sleep  # type: ignore

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: Any) -> None:
        holdfast.time.sleep = self.sleep  # type: ignore
        self.join()

    @staticmethod
    def join() -> None:
        for thread in threading.enumerate():
            if thread.daemon and thread is not threading.current_thread():
                thread.join()

    def send(self, at: int, path: str, body: bytes, limit: float) -> Any:
        request = json.loads(body)
        self.asked.append((at, path.rsplit("/", 1)[1], request, limit))
        delay, status, answer, *head = self.answer(path.rsplit("/", 1)[1], request)
        self.now += delay
        if answer is None:
            raise OSError("no answer")
        return status, head[0] if head else {"Holdfast": "1"}, json.dumps({**GROUP, **answer}).encode()

    def paths(self) -> List[str]:
        return [path for _, path, _, _ in self.asked]


def normal(path: str, body: Any) -> Any:
    if path == "acquire":
        return 0.1, 200, {"state": "held", "token": 7, "left_ms": 10000}
    if path == "renew":
        return 0.1, 200, {"holds": [{"state": "held", "token": 7, "left_ms": 10000} for _ in body["holds"]]}
    return 0.0, 200, {"holds": [{"result": "released"}]}


def but(path: str, *answers: Any) -> Callable[[str, Any], Any]:
    """Answers requests of one path in turn, and all others as usual."""
    left = list(answers)
    return lambda p, body: left.pop(0) if p == path and left else normal(p, body)


class Rules(unittest.TestCase):
    def held(self, w: World) -> Hold:
        return w.locks.acquire("n")

    def test_rule_01_ids_are_fresh(self) -> None:
        with World(normal) as w, World(normal) as other:
            ids = []
            for world in (w, w, other):
                h = self.held(world)
                ids.append(h.id)
                h.release()
            self.assertEqual(len(set(ids)), 3)
            self.assertEqual(ids[0].split(".")[0], ids[1].split(".")[0])
            self.assertNotEqual(ids[0].split(".")[0], ids[2].split(".")[0])
            for id in ids:
                self.assertRegex(id, r"^[A-Za-z0-9_-]{22,64}\.[0-9]+$")

    def test_rule_02_child_has_no_hold(self) -> None:
        with World(normal) as w:
            h = self.held(w)
            asked = len(w.asked)
            child = os.fork()
            if child == 0:
                bad = 0
                try:
                    h.check()
                    bad |= 1
                except LostError:
                    pass
                bad |= 2 if h.release() != "lost" or len(w.asked) != asked else 0
                bad |= 4 if self.held(w).id.split(".")[0] == h.id.split(".")[0] else 0
                os._exit(bad)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            h.check()

    def test_rule_03_until_counts_from_the_sending_with_margins(self) -> None:
        for left, until in ((10000, 1000 + 10 - 0.1 - 0.02), (1000, 1000 + 1 - 0.01 - 0.01)):
            with World(but("acquire", (0.5, 200, {"state": "held", "token": 7, "left_ms": left}))) as w:
                self.assertAlmostEqual(self.held(w).until, until, places=6)

    def test_rule_04_until_moves_only_forward(self) -> None:
        with World(but("renew", (0.1, 200, {"holds": [{"state": "held", "token": 7, "left_ms": 3000}]}))) as w:
            h = self.held(w)
            was = h.until
            w.locks._renew(h)
            self.assertEqual(h.until, was)
            w.locks._renew(h)
            self.assertGreater(h.until, was)

    def test_rule_05_late_grant_is_released(self) -> None:
        with World(but("acquire", (10.5, 200, {"state": "held", "token": 6, "left_ms": 10000}))) as w:
            h = self.held(w)
            self.assertEqual(h.token, 7)
            self.assertEqual(w.paths(), ["acquire", "release", "acquire"])
            self.assertEqual(w.asked[1][2]["holds"][0]["id"], w.asked[0][2]["id"])
            self.assertNotEqual(w.asked[2][2]["id"], w.asked[0][2]["id"])

    def test_rule_06_loss_is_final(self) -> None:
        with World(but("renew", (10.0, 200, {"holds": [{"state": "held", "token": 7, "left_ms": 20000}]}))) as w:
            h = self.held(w)
            w.locks._renew(h)
            with self.assertRaises(LostError) as lost:
                h.check()
            self.assertEqual(lost.exception.code, "expired")
            self.assertTrue(h.lost.is_set())
            self.assertIn("release", w.paths())
            self.assertEqual(h.release(), "lost")

    def test_rule_06_check_compares_clocks(self) -> None:
        with World(normal) as w:
            h = self.held(w)
            w.now = h.until - 0.001
            h.check()
            w.now = h.until
            with self.assertRaises(LostError):
                h.check()

    def test_rule_07_times_of_renewals(self) -> None:
        with World(but("renew", (1.0, 0, None))) as w:
            h = self.held(w)
            self.assertAlmostEqual(h._next, 1000 + 10 / 3, places=6)
            w.now = h._next
            sent = w.now
            w.locks._renew(h)
            self.assertTrue(0.25 <= h._next - w.now <= 0.75)
            w.now = sent = h._next
            w.locks._renew(h)
            self.assertAlmostEqual(h._next, sent + 10 / 3, places=6)
            self.assertEqual([at for at, path, _, _ in w.asked if path == "renew"], [0, 1])

    def test_rule_08_clock_includes_suspends(self) -> None:
        import time
        self.assertLess(abs(holdfast._boottime() - time.clock_gettime(time.CLOCK_BOOTTIME)), 5)
        before, source = [], holdfast.time.clock_gettime
        holdfast.time.clock_gettime = lambda clock: before.append(clock) or 5.0  # type: ignore
        try:
            self.assertEqual(holdfast._boottime(), 5.0)
        finally:
            holdfast.time.clock_gettime = source
        self.assertEqual(before, [time.CLOCK_BOOTTIME])

    def test_rule_09_release_says_moved(self) -> None:
        for answer, moved in (((0.1, 200, {"holds": [{"state": "held", "token": 7, "left_ms": 9000}]}), False),
                              ((0.1, 0, None), True),
                              ((0.1, 200, {"server": "b.2", "holds": [{"state": "held", "token": 7, "left_ms": 9000}]}), True)):
            with World(but("renew", answer)) as w:
                h = self.held(w)
                w.locks._renew(h)
                self.assertEqual(h.release(), "released")
                self.assertEqual(w.asked[-1][2]["holds"], [{"id": h.id, "name": "n", "moved": moved}])

    def test_rule_10_ways_out_release(self) -> None:
        with World(but("acquire", (1.0, 202, {"state": "waiting"}))) as w:
            with self.assertRaises(HeldError):
                w.locks.acquire("n", wait=0.5)
            self.assertEqual(w.paths(), ["acquire", "release"])

        def interrupted(path: str, body: Any) -> Any:
            if path == "acquire":
                raise KeyboardInterrupt
            return normal(path, body)
        with World(interrupted) as w:
            with self.assertRaises(KeyboardInterrupt):
                self.held(w)
            self.assertEqual(w.paths(), ["acquire", "release"])
        with World(lambda p, b: (3.0, 0, None) if p == "acquire" else normal(p, b)) as w:
            with self.assertRaises(UnavailableError):
                self.held(w)
            self.assertEqual(w.paths()[-1], "release")

    def test_rule_11_next_server_has_the_same_id(self) -> None:
        for answer in ((0.1, 0, None), (0.1, 503, {"code": "draining"}), (0.1, 500, {"code": "internal"}),
                       (0.1, 200, {"state": "held", "token": 9, "left_ms": 9000}, {})):
            with World(but("acquire", answer)) as w:
                self.assertEqual(self.held(w).token, 7)
                self.assertEqual([at for at, _, _, _ in w.asked], [0, 1])
                self.assertEqual(w.asked[0][2]["id"], w.asked[1][2]["id"])

    def test_rule_11_each_server_is_asked_before_the_wait_ends(self) -> None:
        for wait, took in ((0.0, 0.0), (None, 11.0)):
            with World(but("acquire", (took, 0, None))) as w:
                self.assertEqual(w.locks.acquire("n", wait=wait).token, 7)
                self.assertEqual([at for at, _, _, _ in w.asked], [0, 1])
        with World(lambda p, b: (0.0, 0, None) if p == "acquire" else normal(p, b)) as w:
            with self.assertRaises(UnavailableError):
                w.locks.acquire("n", wait=0)
            self.assertEqual(w.paths(), ["acquire", "acquire", "release"])

    def test_rule_11_server_without_its_store_is_left(self) -> None:
        away = {"status": 503, "code": "store_unknown", "left_ms": 9000}
        for path, entry, at in (("renew", away, [0, 0, 1]), ("release", {"result": "unknown"}, [0, 0, 0, 1])):
            with World(but(path, (0.1, 200, {"holds": [entry]}))) as w:
                h = self.held(w)
                w.locks._renew(h)
                self.assertEqual(h.release(), "released")
                self.assertEqual([a for a, _, _, _ in w.asked], at)

    def test_rule_11_answer_that_makes_no_sense_is_none(self) -> None:
        for data in (b"[]", b"null", b'{"holds": null}', b'{"holds": [1]}', b"{", b"\xff"):
            with World(normal) as w:
                h = self.held(w)
                good = w.locks._send
                w.locks._send = lambda *a: (200, {"Holdfast": "1"}, data)  # type: ignore
                w.locks._renew(h)
                w.locks._send = good  # type: ignore
                h.check()
                self.assertTrue(h._moved)
                self.assertEqual(h.release(), "released")

    def test_rule_12_another_group_is_refused(self) -> None:
        with World(but("renew", (0.1, 200, {"group": "00000002", "holds": [{"state": "held", "token": 7, "left_ms": 99000}]}))) as w:
            h = self.held(w)
            was = h.until
            w.locks._renew(h)
            self.assertEqual(h.until, was)
        with World(but("acquire", (0.1, 202, {"state": "waiting"}), (0.1, 200, {"group": "2", "state": "held", "token": 1, "left_ms": 9000}))) as w:
            with self.assertRaises(RefusedError):
                self.held(w)

    def test_rule_13_nests_by_count(self) -> None:
        with World(normal) as w:
            with w.locks.lock("n") as outer:
                with w.locks.lock("n") as inner:
                    self.assertIs(inner, outer)
                outer.check()
                self.assertEqual(w.paths(), ["acquire"])
            self.assertEqual(w.paths(), ["acquire", "release"])
            with w.locks.lock("n"):
                seen: List[Any] = []
                thread = threading.Thread(target=lambda: seen.append(w.locks.acquire("n")))
                thread.start()
                thread.join()
                self.assertEqual(w.paths()[2:], ["acquire", "acquire"])

    def test_rule_14_token_needs_tls_and_stays_hidden(self) -> None:
        with self.assertRaises(ValueError) as bad:
            Locks("http://lockd1:7420", token="geheim")
        self.assertNotIn("geheim", str(bad.exception))
        locks = Locks("https://lockd1:7420", token="geheim")
        self.assertNotIn("geheim", repr(locks))
        with mock.patch("http.client.HTTPSConnection.request", side_effect=OSError) as request:
            with self.assertRaises(UnavailableError):
                Locks("https://lockd1:7420", lambda: "geheim\n", ttl=0.5).acquire("n", wait=0)
        self.assertEqual(request.call_args.args[3]["Authorization"], "Bearer geheim")
        with self.assertRaises(RefusedError) as refused:
            Locks("http://127.0.0.1:1", token="ge\nheim").acquire("n")
        self.assertNotIn("heim", str(refused.exception))
        for address in ("ftp://h", "http://user:geheim@h", "https://h/path", "h:7420"):
            with self.assertRaises(ValueError):
                Locks(address)

    def test_rule_15_request_has_one_id(self) -> None:
        with World(normal) as w:
            holds = [w.locks.acquire(f"n{i}") for i in range(2)]
            for h in holds:
                w.locks._renew(h)
            renewed = [b["holds"] for _, p, b, _ in w.asked if p == "renew"]
            self.assertEqual(renewed, [[h.id] for h in holds])

    def test_rule_16_release_is_bounded_and_tells(self) -> None:
        for results, told in ((["released"], "released"), (["gone"], "lost"), ([None, "gone"], "released")):
            answers = [(0.1, 0, None) if r is None else (0.1, 200, {"holds": [{"result": r}]}) for r in results]
            with World(but("release", *answers)) as w:
                self.assertEqual(self.held(w).release(), told)
        with World(lambda p, b: (0.4, 0, None) if p == "release" else normal(p, b)) as w:
            h = self.held(w)
            began = w.now
            self.assertEqual(h.release(), "unknown")
            self.assertLess(w.now - began, 10 / 3 + 0.4 + 0.75)

    def test_rule_17_doubt_is_told_once(self) -> None:
        with World(normal) as w:
            doubts: List[Hold] = []

            def keep(h: Hold) -> None:
                with mock.patch.object(h._over, "wait", side_effect=InterruptedError):
                    with self.assertRaises(InterruptedError):
                        Locks._keep(w.locks, h)

            h = w.locks.acquire("n", on_doubt=doubts.append)
            h._next = 1e18
            w.now = h.until - 2.6
            keep(h)
            self.assertEqual(doubts, [])
            w.now = h.until - 2.4
            keep(h)
            keep(h)
            w.join()
            self.assertEqual(doubts, [h])
            self.assertTrue(h.in_doubt)
            w.locks._renew(h)
            self.assertFalse(h.in_doubt)

    def test_rule_18_the_next_try_begins_with_resume(self) -> None:
        unknown = (0.1, 200, {"holds": [{"status": 404, "code": "unknown_hold"}]})
        answers = iter([(0.1, 200, {"state": "held", "token": 7, "left_ms": 9000}), (0.1, 503, {"code": "store_unknown"})])
        with World(lambda p, b: next(answers, normal(p, b)) if p == "acquire" else unknown if p == "renew" else normal(p, b)) as w:
            h = self.held(w)
            w.locks._renew(h)
            w.locks._renew(h)
            self.assertEqual([a[1] for a in w.asked], ["acquire", "renew", "acquire", "acquire"])
            w.locks._renew(h)
            self.assertEqual(w.asked[4][1], "renew")
            h.check()

    def test_rule_18_a_hold_that_waits_elsewhere_is_resumed(self) -> None:
        with World(but("renew", (0.1, 200, {"holds": [{"state": "waiting", "left_ms": 9000}]}))) as w:
            h = self.held(w)
            w.locks._renew(h)
            self.assertEqual(w.asked[-1][2].get("resume"), 7)
            h.check()

    def test_rule_18_unknown_hold_is_resumed_by_its_token(self) -> None:
        unknown = (0.1, 200, {"holds": [{"status": 404, "code": "unknown_hold"}]})
        with World(but("renew", unknown)) as w:
            h = self.held(w)
            w.locks._renew(h)
            self.assertEqual(w.asked[-1][1], "acquire")
            self.assertEqual(w.asked[-1][2]["resume"], 7)
            h.check()
        answers = iter([(0.1, 200, {"state": "held", "token": 7, "left_ms": 9000}), (0.1, 200, {"state": "held", "token": 8, "left_ms": 9000})])
        with World(lambda p, b: next(answers) if p == "acquire" else unknown if p == "renew" else normal(p, b)) as w:
            h = self.held(w)
            w.locks._renew(h)
            with self.assertRaises(LostError):
                h.check()


if __name__ == "__main__":
    unittest.main()
