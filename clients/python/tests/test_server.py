"""Against lock servers: go run ./clients/lockd python3 -m unittest discover -s clients/python -t clients/python"""
import asyncio
import os
import signal
import subprocess
import sys
import threading
import unittest
import urllib.request

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
                Locks(SERVERS[1:]).lock("py/excludes", wait=0).acquire()
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
                Locks(SERVERS).lock("py/readers", kind="write", wait=0).acquire()
        with self.locks.lock("py/permits", kind="permits", permits=2, of=2):
            pass

    def test_bad_request_is_told(self) -> None:
        with self.assertRaises(RefusedError) as bad:
            self.locks.lock("py/bad", ttl=0.01).acquire()
        self.assertEqual(bad.exception.code, "bad_ttl")

    def test_hold_survives_its_server(self) -> None:
        lost = threading.Event()
        locks = Locks(SERVERS, ttl=3.0)
        with locks.lock("py/survives", on_loss=lambda h: lost.set()) as hold:
            switch(SERVERS[0], "down")
            try:
                self.assertFalse(lost.wait(4.0))
                hold.check()
                self.assertEqual(len(hold._servers - {""}), 2)
            finally:
                switch(SERVERS[0], "up")
        with Locks(SERVERS).lock("py/survives", wait=5):
            pass

    def test_loss_is_told_without_servers(self) -> None:
        told: "list[str]" = []
        locks = Locks(SERVERS, ttl=1.0)
        for server in SERVERS:
            switch(server, "up")
        hold = locks.lock("py/loss", on_doubt=lambda h: told.append("doubt"), on_loss=lambda h: told.append(h.reason)).acquire()
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
        self.assertEqual(told, ["doubt", "expired"])

    def test_killed_process_delays_others_by_a_ttl(self) -> None:
        code = "import sys; from holdfast import Locks; Locks(sys.argv[1]).lock('py/killed', ttl=1.0).acquire(); print('held', flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", code, SERVERS[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout and child.stdin
        self.assertEqual(child.stdout.readline(), b"held\n")
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stdin.close()
        with self.locks.lock("py/killed", wait=30):
            pass

    def test_tasks_wait_and_nest(self) -> None:
        count = [0]

        async def turn() -> None:
            async with self.locks.lock("py/tasks") as hold:
                value = count[0]
                async with self.locks.lock("py/tasks") as again:
                    self.assertIs(again, hold)
                await asyncio.sleep(0.001)
                count[0] = value + 1

        async def turns() -> None:
            await asyncio.gather(*(turn() for _ in range(20)))

        asyncio.run(turns())
        self.assertEqual(count, [20])

    def test_cancelled_task_leaves_the_queue(self) -> None:
        async def run() -> None:
            async with self.locks.lock("py/cancelled"):
                other = Locks(SERVERS, ttl=30.0)
                task = asyncio.ensure_future(other.lock("py/cancelled").__aenter__())
                await asyncio.sleep(0.2)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            async with self.locks.lock("py/cancelled", wait=10):
                pass

        asyncio.run(run())

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
        hold = self.locks.lock("py/typed").acquire()
        self.assertIsInstance(hold, Hold)
        self.assertEqual([hold.release(), hold.release()], ["released", "released"])


if __name__ == "__main__":
    unittest.main()
