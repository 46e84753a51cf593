"""Counts in a file under a lock, for `make clients`: worker.py NAME CLIENTS TURNS FILE."""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from holdfast import Locks  # noqa: E402

name, clients, turns, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
servers = os.environ["HOLDFAST_SERVERS"].split(",")
mutex, failed = threading.Lock(), []  # type: ignore


def write(**event):  # type: ignore
    with mutex:
        print(json.dumps({"t": time.clock_gettime_ns(time.CLOCK_BOOTTIME), **event}), flush=True)


def tell_places(locks, event):  # type: ignore
    """Asks in each turn with wait_ms 0 first, and writes that there is a place, for the checker's order."""
    send, asked = locks._send, set()

    def sent(at, path, body, limit):  # type: ignore
        fields = json.loads(body)
        if path == "/v1/acquire" and event["n"] not in asked:
            asked.add(event["n"])
            answer = send(at, path, json.dumps({**fields, "wait_ms": 0}).encode(), limit)
            if answer[0] == 202 and json.loads(answer[2])["left_ms"] > 0:
                write(e="wait", **event)
            return answer
        return send(at, path, body, limit)

    locks._send = sent


def client(g: int) -> None:
    locks, event = Locks(servers[g % 2:] + servers[:g % 2]), {}  # type: ignore
    tell_places(locks, event)
    for turn in range(turns):
        n = 1 + g * turns + turn
        event.update(g=g, n=n)
        write(e="ask", g=g, n=n, name=name, units=1, limit=1, alone=True)
        hold = locks.acquire(name)
        write(e="got", g=g, n=n, tok=hold.token, end=int(hold.until * 1e9))
        with open(path) as file:
            value = int(file.read())
        with open(path, "w") as file:
            file.write(f"{value + 1}\n")
        hold.check()
        write(e="out", g=g, n=n, end=int(hold.until * 1e9))
        result = hold.release()
        if result != "released":
            failed.append(result)
        write(e="done", g=g, n=n)


threads = [threading.Thread(target=client, args=(g,)) for g in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(", ".join(failed) or 0)
