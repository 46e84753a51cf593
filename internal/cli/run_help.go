//go:build unix

package cli

// The help of run.
const (
	runLong = `Run waits for the lock NAME, first come first served, runs COMMAND while holding
it, and releases it when COMMAND has ended. It exits with COMMAND's exit status,
or 128 plus the number of the signal that ended it.

Statuses of its own, of which standard error tells the reason:

   64  the command line, a name, an option or the store's URL is wrong
   69  the store cannot be reached, or refuses
   74  the lock was lost or in doubt, or --max-hold was over: COMMAND was stopped
   75  not acquired: --no-wait found it held, or --wait was over
   78  NAME is in use as another kind of lock
  126  COMMAND cannot be run
  127  COMMAND was not found

A command may end with such a status too. With --json, the last line on standard
error is an object whose "status" is the exit status, and whose "by" says whose:
"command" or "holdfast".

The command. Standard input, output and error are its own; run writes to standard
error only. It runs in a process group of its own, to which INT, TERM, HUP, QUIT,
USR1, USR2 and WINCH are passed on. INT or HUP that was ignored when run was
started (by nohup, or in the background of a script) stays ignored, by run and by
COMMAND. On a terminal that group is the foreground while it runs, so keys work
as they would without holdfast; in a pipeline it becomes that as soon as it reads
from the terminal. Ctrl-Z stops holdfast too, which then renews nothing: if it is
not continued, the command is stopped as described next. Background processes that
COMMAND leaves behind run on without the lock, unless holdfast stopped COMMAND, or
is the first process of a container, which ends with it; there, run also reaps the
orphans of COMMAND.

In its environment are

  HOLDFAST_NAME   the lock's name
  HOLDFAST_TOKEN  the fencing token, greater than that of every earlier holder
                  (with --shared and --slots it only orders)
  HOLDFAST_SLOT   with --once-per, the slot, in RFC 3339
  HOLDFAST_STORE  the file that the store's URL was read from, as @FILE, or else
                  the URL without its password
  HOLDFAST_HELD   the locks held around COMMAND: a run within it that could only
                  wait for one of them is refused, with 64

When the lock is in doubt. The lock is renewed every third of the TTL. If the
store has not confirmed a renewal until --grace before the lease ends (a quarter
of the TTL, unless given), the process group is sent TERM, and, a fifth of that
time before the end (a second at most), KILL: when the next holder can start,
nothing of COMMAND is left. A lock that is already gone, such as one that an
operator broke, is followed by KILL at once.

Leading. With --lead, COMMAND starts whenever this run leads, that is, holds the
lock, and is stopped as described above when the lock is lost or in doubt, or
--max-hold is over. Then run waits for the lock again, after a pause of 0.1 to 10
s, also while the store is unavailable, and starts COMMAND anew in its next term.
Run ends with COMMAND's status when COMMAND ends by itself, and when INT, TERM or
QUIT tell it to stop. Other runs of NAME with --lead stand by.

Once for each slot. With --once-per, COMMAND runs once for each day, week, month or
other period of NAME, on one machine of all that say so, however wrong their clocks
are. While it runs elsewhere, run waits, and then exits with 0 if the slot is done;
a run that comes later exits with 0 at once. A slot is done when COMMAND has ended,
also by a signal, with any status but 75. That leaves the slot open, as the death of
run and a lock that was lost do: then the next in line runs it. If the lock is lost
once the slot is recorded, run says so and exits with COMMAND's status. Weeks begin on
Monday. The last 10 s before a slot count for it; of slots below 200 s, the last
twentieth.

When holdfast itself dies. A second process of it, the guard, is in the group of
COMMAND. If holdfast is killed with SIGKILL, the guard kills the group at once;
if it is stopped, or starved, the guard sends TERM and KILL in time. On Linux and
FreeBSD the kernel kills COMMAND also if the guard was killed together with
holdfast; elsewhere, and for what COMMAND started, nobody does in that case. The
lock is free again after its TTL. Processes that have left the process group
(daemons) or run as another user cannot be stopped: say "sudo holdfast run", not
"holdfast run NAME -- sudo".

At the end. The lock is given back when COMMAND has ended, and a place in the
queue when a signal ends the wait. A store that is silent is waited for as long as
a third of the TTL, 5 s at most; after another signal, for one more second.
Tickets that are left end with their leases.

Kinds of locks. A lock is a mutex unless --shared or --exclusive make it a
read/write lock, or --slots a semaphore. All who use a name have to agree on the
kind.`

	runExample = `  # A cron job that must not overlap with itself, on whatever machine it runs
  holdfast run --no-wait nightly -- /usr/local/bin/backup --all

  # Wait for a minute at most, and say why
  holdfast run --wait 1m --note "release 1.4" deploy -- ./deploy.sh

  # Four encoders at a time, many readers beside one writer
  holdfast run --slots 4 encode -- ffmpeg -i in.mov out.mp4
  holdfast run --shared catalogue -- ./report
  holdfast run --exclusive catalogue -- ./reindex

  # One leader; the same line on other machines stands by
  holdfast run --lead reconciler -- ./reconcile

  # The night's backup, on one of the machines whose crontabs have this line
  holdfast run --once-per day backup -- /usr/local/bin/backup --all

  # Refuse a late write with the fencing token
  holdfast run import -- sh -c 'psql -v token="$HOLDFAST_TOKEN" -f import.sql'`
)
