"""kazoo's locks, driven line by line by the tests of zklock.

It says "ready", and then one line for each of these on its standard input:

    try KIND PATH          held, or busy
    lock KIND PATH         held, when it is
    unlock KIND PATH       released
    count PATH NODE TIMES  counted, when NODE's number was raised so often

KIND is mutex, read or write. The locks look for those of Curator's format,
which Holdfast uses too.
"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

OTHERS = {
    "mutex": (Lock, ["-lock-"]),
    "read": (ReadLock, ["__WRIT__"]),
    "write": (WriteLock, ["__READ__", "__WRIT__"]),
}


class Peer:
    def __init__(self, address):
        self.client = KazooClient(hosts=address)
        self.client.start(timeout=20)
        self.locks = {}
        self.turn = threading.Lock()

    def say(self, text):
        with self.turn:
            print(text, flush=True)

    def lock(self, kind, path):
        if (kind, path) not in self.locks:
            make, patterns = OTHERS[kind]
            self.locks[kind, path] = make(self.client, path, "kazoo", extra_lock_patterns=patterns)
        return self.locks[kind, path]

    def obey(self, words):
        try:
            if words[0] == "count":
                self.count(words[1], words[2], int(words[3]))
                self.say("counted")
            elif words[0] == "try":
                self.say("held" if self.lock(*words[1:]).acquire(blocking=False) else "busy")
            elif words[0] == "lock":
                self.lock(*words[1:]).acquire()
                self.say("held")
            elif words[0] == "unlock":
                self.lock(*words[1:]).release()
                self.say("released")
            else:
                self.say("unknown: " + words[0])
        except Exception as e:  # the test reports it
            self.say("failed: %r" % e)

    def count(self, path, node, times):
        for _ in range(times):
            with Lock(self.client, path, "kazoo", extra_lock_patterns=OTHERS["mutex"][1]):
                n = int(self.client.get(node)[0])
                self.client.set(node, str(n + 1).encode())


def main():
    peer = Peer(sys.argv[1])
    peer.say("ready")
    threads = []
    for line in sys.stdin:
        threads.append(threading.Thread(target=peer.obey, args=(line.split(),)))
        threads[-1].start()
    for t in threads:
        t.join()
    peer.client.stop()
    peer.client.close()


main()
