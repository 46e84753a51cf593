----------------------------- MODULE LocalQueue -----------------------------
(***************************************************************************)
(* The queue that goroutines of one client share (queue.go), and the store *)
(* as this queue sees it. Operators have the names of the Go functions     *)
(* that are called with queue.mu locked. Module HandOver has the sections  *)
(* between Lock and Unlock that call them, one action for each.            *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  First, Second, \* the goroutines of client 1 and of client 2: two sets of numbers
  KindFirst, KindSecond, \* what each client's queue locks: "mutex", "readers" or "permits"
  Limit,      \* units that fit the lock; a mutex takes them all, others take one
  Trying,     \* goroutines that call Try
  Impatient,  \* goroutines whose context may end
  Refs,       \* tickets of a client: no step takes more, which bounds the world
  MaxHand,    \* local hand-offs of one grant: maxHandOffs
  Slow,       \* whether maxHandOffTime may pass, after which no hand-off is local
  Losses,     \* answers to Join that are lost
  Silences,   \* claims that end, and answers older than their lease
  Pushes,     \* whether the store sends pushes
  Stay,       \* for liveness: goroutines that wait and are granted
  Bug

Clients == IF Second = {} THEN {1} ELSE {1, 2}
Goroutines == First \cup Second
ClientOf(g) == IF g \in First THEN 1 ELSE 2
Of(c) == IF c = 1 THEN First ELSE Second
Kind(c) == IF c = 1 THEN KindFirst ELSE KindSecond
Flaw(name) == Bug = name

ASSUME Trying \cup Impatient \cup Stay \subseteq Goroutines /\ First \cap Second = {}
ASSUME {KindFirst, KindSecond} \subseteq {"mutex", "readers", "permits"}
ASSUME KindFirst = "mutex" \/ Limit > 1

VARIABLES
  queue,  \* of each client, see NoQueue
  store,  \* tickets in order, the tokens of those that hold, tombstones, the last token
  news,   \* pushes under way: <<client, ticket, state, token>>
  late,   \* <<client, ticket, try, replaced>>: Joins that were given up and may still arrive
  world   \* losses and silences so far, the highest token given to a goroutine, whether one was lower

vars == <<queue, store, news, late, world>>

\* A goroutine: its place in acquire, its ticket, whether its wait failed, the
\* channel that wakes it, and the Join that it sends.
NoCall == [pc |-> "new", ticket |-> 0, err |-> FALSE, wake |-> "nil", cancelled |-> FALSE, call |-> 0, answer |-> "none",
           pending |-> FALSE]
NoTicket == [state |-> "none", sent |-> FALSE, pending |-> FALSE, hand |-> 0, early |-> 0,
             valid |-> FALSE, lapsed |-> FALSE, replaces |-> 0, token |-> 0, users |-> <<>>]
NoQueue(c) == [client |-> c, waiters |-> <<>>, pending |-> 0, joiner |-> 0, joining |-> FALSE, open |-> 0,
               next |-> 1, cleaner |-> {}, losing |-> 0, given |-> <<>>,
               t |-> [i \in 1..Refs + 1 |-> NoTicket], g |-> [g \in Of(c) |-> NoCall]]
Init == /\ queue = [c \in Clients |-> NoQueue(c)]
        /\ store = [line |-> <<>>, token |-> [x \in Clients \X (1..Refs + 1) |-> 0], tombstone |-> {}, last |-> 0]
        /\ news = {} /\ late = {}
        /\ world = [losses |-> 0, silences |-> 0, top |-> <<0, 0>>, back |-> FALSE]

Max(a, b) == IF a > b THEN a ELSE b
Without(s, x) == SelectSeq(s, LAMBDA y : y # x)
Has(s, x) == \E i \in 1..Len(s) : s[i] = x

(************************* The store ***************************************)

UnitsOf(x) == IF Kind(x[1]) = "mutex" THEN Limit ELSE 1
RECURSIVE Sum(_)
Sum(line) == IF line = <<>> THEN 0 ELSE UnitsOf(Head(line)) + Sum(Tail(line))
RECURSIVE Advance(_, _)
Advance(s, i) ==
  IF i > Len(s.line) \/ Sum(SubSeq(s.line, 1, i)) > Limit THEN s
  ELSE IF s.token[s.line[i]] > 0 THEN Advance(s, i + 1)
  ELSE Advance([s EXCEPT !.token[s.line[i]] = s.last + 1, !.last = @ + 1], i + 1)
Remove(s, x) == Advance([s EXCEPT !.line = Without(@, x), !.token[x] = 0], 1)
StateAt(s, x) == IF ~Has(s.line, x) THEN "gone" ELSE IF s.token[x] > 0 THEN "held" ELSE "waiting"
JoinAt(s, x, try, old) ==
  LET s1 == IF old # 0 /\ x \notin s.tombstone THEN Remove(s, <<x[1], old>>) ELSE s
      s2 == IF x \in s.tombstone \/ Has(s1.line, x) THEN s1
            ELSE Advance([s1 EXCEPT !.line = Append(@, x)], 1)
  IN IF try /\ StateAt(s2, x) = "waiting" THEN Remove(s2, x) ELSE s2
LeaveAt(s, x, pending) ==
  LET s1 == Remove(s, x) IN IF pending THEN [s1 EXCEPT !.tombstone = @ \cup {x}] ELSE s1

Live(q, i) == q.t[i].state \in {"new", "waiting", "held"}
\* The store becomes s, and the queue of client c becomes q; w has new counts of the world.
Becomes(s, c, q, w) ==
  LET all == [queue EXCEPT ![c] = [q EXCEPT !.given = <<>>]]
      tops == [i \in 1..Len(q.given) + 1 |-> IF i = 1 THEN world.top ELSE q.given[i - 1]]
      above(a, b) == a[1] > b[1] \/ (a[1] = b[1] /\ a[2] > b[2])
      new == {x \in Clients \X (1..Refs) : s.token[x] > 0 /\ s.token[x] # store.token[x]}
  IN /\ q.next <= Refs + 1 /\ queue' = all /\ store' = s
     /\ news' = {n \in news \cup (IF Pushes THEN {<<x[1], x[2], "held", s.token[x]>> : x \in new} ELSE {})
                   : Live(all[n[1]], n[2]) /\ all[n[1]].t[n[2]].state # "held"}
     /\ world' = [w EXCEPT !.top = tops[Len(tops)],
                               !.back = @ \/ \E i \in 1..Len(q.given) : ~above(tops[i + 1], tops[i])]

(************************* The queue: functions of queue.go *****************)

Exclusive(q) == Kind(q.client) = "mutex"
Readers(q) == Kind(q.client) = "readers"
HeldCount(q) == Cardinality({i \in 1..Refs : q.t[i].state = "held"})
Queued(q, g) == q.g[g].ticket = 0 /\ ~q.g[g].err
WakeUp(q, g) == IF q.g[g].wake = "empty" THEN [q EXCEPT !.g[g].wake = "full"] ELSE q
AppointJoiner(q, g) == IF Flaw("lost-wake") THEN [q EXCEPT !.joiner = g] ELSE WakeUp([q EXCEPT !.joiner = g], g)
NewTicket(q) == [q EXCEPT !.t[q.next] = [NoTicket EXCEPT !.state = "new"], !.pending = q.next, !.next = @ + 1]
EnsureJoiner(q) ==
  IF q.waiters = <<>> \/ q.pending # 0 \/ (Exclusive(q) /\ HeldCount(q) > 0) THEN q
  ELSE AppointJoiner(NewTicket(q), Head(q.waiters))
ClearPending(q) == [q EXCEPT !.pending = 0, !.joiner = 0]
Clean(q, i) == [q EXCEPT !.cleaner = @ \cup {<<i, q.t[i].pending /\ ~Flaw("pending-forgotten")>>}]
CleanReplaced(q, i) == IF q.t[i].replaces = 0 \/ Flaw("replaced-forgotten") THEN q
                       ELSE [q EXCEPT !.cleaner = @ \cup {<<q.t[i].replaces, FALSE>>}]
\* Nothing but its users is read of a ticket that is gone.
Gone(q, i) == [q EXCEPT !.t[i] = [NoTicket EXCEPT !.state = "gone"]]
AbandonPending(q) ==
  LET i == q.pending
      r == IF q.t[i].state = "new" THEN CleanReplaced(ClearPending(q), i) ELSE ClearPending(q)
  IN IF q.t[i].state = "new" /\ ~q.t[i].sent THEN Gone(r, i) ELSE Gone(Clean(r, i), i)
PassJoiner(q) ==
  IF \/ q.pending = 0 \/ (q.joining /\ ~Flaw("joiner-overtaken")) \/ (q.joiner # 0 /\ Queued(q, q.joiner)) THEN q
  ELSE IF q.waiters # <<>> THEN AppointJoiner(q, Head(q.waiters)) ELSE AbandonPending(q)
RemoveWaiter(q, g) == [q EXCEPT !.waiters = Without(@, g)]
FailWait(q, g) == IF Queued(q, g) THEN WakeUp([RemoveWaiter(q, g) EXCEPT !.g[g].err = TRUE], g) ELSE q
RECURSIVE FailAll(_, _)
FailAll(q, S) == IF S = {} THEN q ELSE LET g == CHOOSE x \in S : TRUE IN FailAll(FailWait(q, g), S \ {g})
FailTries(q) == IF Flaw("tries-wait") THEN q ELSE FailAll(q, {g \in Trying : Has(q.waiters, g)})
GrantTo(q, i, g) ==
  LET r == WakeUp([RemoveWaiter(q, g) EXCEPT !.g[g].ticket = i, !.t[i].users = Append(@, g),
                     !.given = IF Exclusive(q) THEN Append(@, <<q.t[i].token, q.t[i].hand>>) ELSE @], g)
  IN IF r.joiner = g \/ r.waiters = <<>> THEN PassJoiner(r) ELSE r
RetireHeld(q, i) == [Gone(q, i) EXCEPT !.open = IF @ = i /\ ~Flaw("open-kept") THEN 0 ELSE @]
DiscardHeld(q, i) == IF Flaw("discard-kept") THEN RetireHeld(q, i) ELSE RetireHeld(Clean(q, i), i)
RECURSIVE Admit(_, _)
Admit(q, i) == IF q.waiters = <<>> \/ (q.t[i].hand >= MaxHand /\ ~Flaw("admits-for-ever")) THEN q
               ELSE Admit(GrantTo([q EXCEPT !.t[i].hand = @ + 1], i, Head(q.waiters)), i)
OnGrant(q, i, token) ==
  LET r0 == [IF q.pending = i THEN ClearPending(q) ELSE q EXCEPT !.t[i].state = "held", !.t[i].token = token]
      r1 == GrantTo(r0, i, Head(r0.waiters))
      r2 == IF Readers(r1) THEN Admit([r1 EXCEPT !.open = i], i) ELSE r1
  IN IF r0.waiters = <<>> THEN (IF Flaw("unwanted-held") THEN r0 ELSE DiscardHeld(r0, i))
     ELSE EnsureJoiner(IF Exclusive(r2) THEN FailTries(r2) ELSE r2)
TryBlocked(q) == (q.waiters # <<>> /\ Head(q.waiters) \notin Trying) \/ (Exclusive(q) /\ HeldCount(q) > 0)

\* The loop of acquire: what a goroutine does next when it has the mutex.
Sleep(q, g) == [q EXCEPT !.g[g].pc = "asleep", !.g[g].wake = IF @ = "nil" THEN "empty" ELSE @]
Ends(q, g, pc) == [q EXCEPT !.g[g] = [NoCall EXCEPT !.pc = pc, !.ticket = IF pc = "holds" THEN q.g[g].ticket ELSE 0]]
Turn(q, g) == IF q.joiner # g THEN Sleep(q, g) ELSE [q EXCEPT !.joining = TRUE, !.g[g].pc = "joins"]
Loop(q, g) ==
  LET i == q.g[g].ticket
      back == [q EXCEPT !.g[g].ticket = 0]
      front == EnsureJoiner([back EXCEPT !.waiters = <<g>> \o @])
  IN CASE q.g[g].err -> Ends(q, g, "over")
       [] i # 0 /\ (q.t[i].state = "held" \/ Flaw("lost-grant-taken")) -> Ends(q, g, "holds")
       [] i # 0 /\ q.t[i].state # "held" -> IF g \in Trying /\ TryBlocked(back) THEN Ends(back, g, "over") ELSE Turn(front, g)
       [] OTHER -> Turn(q, g)
\* What follows join in acquire, in the section that handled the reply.
AfterJoin(q, g) ==
  LET r0 == [q EXCEPT !.joining = FALSE, !.g[g].call = 0, !.g[g].answer = "none"]
      r == IF r0.joiner = g /\ ~Queued(r0, g) /\ ~Flaw("role-kept") THEN PassJoiner(r0) ELSE r0
  IN IF ~Queued(r, g) \/ ~r.g[g].cancelled THEN Loop(r, g) ELSE Sleep(r, g)
=============================================================================
