"""Against lock servers: go run ./clients/lockd python3 -m unittest discover -s clients/python -t clients/python"""
import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from holdfast import HeldError, Hold, Locks, LostError, RefusedError

SERVERS = os.environ.get("HOLDFAST_SERVERS", "").split(",")


def switch(server: str, way: str) -> None:
    urllib.request.urlopen(f"{server}/test/{way}", b"").close()


class Server(unittest.TestCase):
    def setUp(self) -> None:
        self.assertTrue(SERVERS[0], "HOLDFAST_SERVERS is not set: run the tests by clients/lockd")
        self.locks = Locks(SERVERS, ttl=3.0)

    def test_lock_excludes_and_tokens_grow(self) -> None:
        with self.locks.lock("py/excludes", note="first") as first:
            with self.assertRaises(HeldError) as held:
                Locks(SERVERS[1:]).acquire("py/excludes", wait=0)
            self.assertEqual(held.exception.answer["holder"]["note"], "first")
        with self.locks.lock("py/excludes") as second:
            self.assertGreater(second.token, first.token)

    def test_renewals_keep_the_lock(self) -> None:
        lost = threading.Event()
        locks = Locks(SERVERS, ttl=1.0)
        with locks.lock("py/renewals", on_loss=lambda h: lost.set()) as hold:
            self.assertFalse(lost.wait(3.0))
            hold.check()

    def test_readers_share_and_permits_count(self) -> None:
        with self.locks.lock("py/readers", kind="read"), Locks(SERVERS).lock("py/readers", kind="read"):
            with self.assertRaises(HeldError):
                Locks(SERVERS).acquire("py/readers", kind="write", wait=0)
        with self.locks.lock("py/permits", kind="permits", permits=2, of=2):
            pass

    def test_bad_request_is_told(self) -> None:
        with self.assertRaises(RefusedError) as bad:
            self.locks.acquire("py/bad", ttl=0.01)
        self.assertEqual(bad.exception.code, "bad_ttl")

    def test_hold_survives_its_server(self) -> None:
        lost = threading.Event()
        locks = Locks(SERVERS, ttl=3.0)
        with locks.lock("py/survives", on_loss=lambda h: lost.set()) as hold:
            switch(SERVERS[0], "down")
            try:
                self.assertFalse(lost.wait(4.0))
                hold.check()
                self.assertTrue(hold._moved)
            finally:
                switch(SERVERS[0], "up")
        with Locks(SERVERS).lock("py/survives", wait=5):
            pass

    def test_loss_is_told_without_servers(self) -> None:
        told: "queue.Queue[str]" = queue.Queue()  # each callback has a thread of its own
        locks = Locks(SERVERS, ttl=1.0)
        for server in SERVERS:
            switch(server, "up")
        hold = locks.acquire("py/loss", on_doubt=lambda h: told.put("doubt"), on_loss=lambda h: told.put(h.reason))
        try:
            for server in SERVERS:
                switch(server, "down")
            self.assertTrue(hold.lost.wait(10.0))
            with self.assertRaises(LostError):
                hold.check()
        finally:
            for server in SERVERS:
                switch(server, "up")
        self.assertEqual(hold.release(), "lost")
        self.assertEqual({told.get(timeout=10.0), told.get(timeout=10.0)}, {"doubt", "expired"})
        self.assertTrue(told.empty())

    def test_killed_process_delays_others_by_a_ttl(self) -> None:
        code = "import sys; from holdfast import Locks; Locks(sys.argv[1]).acquire('py/killed', ttl=1.0); print('held', flush=True); input()"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # it imports the package that is tested
        child = subprocess.Popen([sys.executable, "-c", code, SERVERS[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert child.stdout and child.stdin
        self.assertEqual(child.stdout.readline(), b"held\n")
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stdin.close()
        with self.locks.lock("py/killed", wait=30):
            pass

    def test_nested_lock_is_the_same_hold(self) -> None:
        with self.locks.lock("py/nested") as hold:
            with self.locks.lock("py/nested") as again:
                self.assertIs(again, hold)
            hold.check()

    def test_tasks_wait_on_an_executor(self) -> None:
        """As README.md says: an executor for the waits, and the loop's own for the releases."""
        count = [0]

        async def turn(waits: ThreadPoolExecutor) -> None:
            loop = asyncio.get_running_loop()
            hold = await loop.run_in_executor(waits, self.locks.acquire, "py/tasks")
            try:
                value = count[0]
                await asyncio.sleep(0.001)
                count[0] = value + 1
            finally:
                self.assertEqual(await asyncio.to_thread(hold.release), "released")

        async def turns() -> None:
            with ThreadPoolExecutor(20) as waits:
                await asyncio.gather(*(turn(waits) for _ in range(20)))

        asyncio.run(turns())
        self.assertEqual(count, [20])

    def test_threads_count_exactly(self) -> None:
        count = [0]

        def turns() -> None:
            for _ in range(10):
                with self.locks.lock("py/threads"):
                    value = count[0]
                    threading.Event().wait(0.001)
                    count[0] = value + 1

        threads = [threading.Thread(target=turns) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(count, [100])

    def test_hold_object_is_typed(self) -> None:
        hold = self.locks.acquire("py/typed")
        self.assertIsInstance(hold, Hold)
        self.assertEqual([hold.release(), hold.release()], ["released", "released"])


if __name__ == "__main__":
    unittest.main()
