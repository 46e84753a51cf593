"""Holds the lock of an invoice for two seconds: python3 example.py [SERVER...]"""
import sys
import time

from holdfast import HeldError, Locks

locks = Locks(sys.argv[1:] or "http://127.0.0.1:7420")
try:
    with locks.lock("invoice/42", wait=0, note="close of May") as hold:
        print("held with token", hold.token, flush=True)
        time.sleep(2)
        hold.check()
except HeldError as held:
    sys.exit(f"{held}: {held.answer['holder']['note']}")
