------------------------------- MODULE Stock --------------------------------
(***************************************************************************)
(* Units of one product in shards (stock/memory.go). A sale is decided by  *)
(* one shard, the home of its id, which the directory names. Rebalance     *)
(* changes the number of shards (epoch.go): each shard learns the new      *)
(* epoch before a client can read the new directory, and sells by no other *)
(* epoch than its own. Receipts stay where they were written, so a sale    *)
(* asks the former homes of its id first. Units move by a note at their    *)
(* sender, which is delivered until it is cleared (rebalance.go).          *)
(*                                                                         *)
(* Each action is one request, named as the operation of memory.go or the  *)
(* Go function that sends it. Clients die between any two requests, and    *)
(* requests come late and again: so a request is sent by nobody in         *)
(* particular, and may arrive as long as it can be under way.              *)
(*                                                                         *)
(* Assumed: a request is under way for less than Keep, and a shard loses   *)
(* nothing; the directory may go back to an older copy. One unit to a      *)
(* sale. Not here: Add, Cancel, patience, and where a client looks first.  *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Ids,        \* sales, as numbers: the home of s in n shards is s % n + 1
  Shards,     \* the number of shards that ever are
  Before, After,  \* how many sell before a Rebalance, and after it; then the other way round
  Changes,    \* how often the number changes
  Units,      \* units of each of the first shards
  Lease,      \* ticks of a reservation; 0: ids are sold at once
  Keep,       \* ticks of a receipt after its last change
  PastKept,   \* ticks for which a former home is asked after its last reservation
  Times,      \* ticks of the world
  Moves,      \* transfers between two shards
  Restores,   \* how often the directory goes back to an older copy
  Bug

ASSUME Before \in 1..Shards /\ After \in 1..Shards /\ Keep > 1

VARIABLES
  shard,  \* of each shard, see Shard
  dir,    \* the directory, at its server
  older,  \* what it was before
  calls,  \* sales under way, see Begin
  notes,  \* <<from, to, number>>: transfers that may be delivered, and again
  owed,   \* history: ticks for which an id must not be sold again
  world   \* counts, and whether an id was sold twice

vars == <<shard, dir, older, calls, notes, owed, world>>
Flaw(name) == Bug = name
Less(a) == IF a > 0 THEN a - 1 ELSE 0
Max(a, b) == IF a > b THEN a ELSE b
Places == 1..Shards
Home(s, n) == (s % n) + 1
None == [state |-> "none", left |-> 0]

\* past: former numbers of shards, and for how long receipts of them are asked for.
First == [epoch |-> 1, n |-> Before, next |-> 0, past |-> {}]
Shard(i) == [epoch |-> 1, copy |-> First, free |-> IF i <= Before THEN Units ELSE 0, sold |-> 0,
             seq |-> [p \in Places |-> 0], out |-> [p \in Places |-> 0], in |-> [p \in Places |-> 0],
             book |-> [s \in Ids |-> None]]
Init == /\ shard = [i \in Places |-> Shard(i)] /\ dir = First /\ older = {} /\ calls = {} /\ notes = {}
        /\ owed = [s \in Ids |-> 0] /\ world = [ticks |-> 0, restores |-> 0, changes |-> 0, twice |-> FALSE]

(************************* Sales *******************************************)

Former(s, d) == {Home(s, p[1]) : p \in d.past} \ {Home(s, d.n)}
\* A client has read the directory (readFinished: no change is in progress). It asks the former
\* homes, and then the home; a call that dies in between goes no further.
Begin(s) == LET what == IF Lease > 0 THEN "reserved" ELSE "sold" IN
  /\ dir.next = 0
  /\ calls' = calls \cup {[id |-> s, what |-> what, epoch |-> dir.epoch, home |-> Home(s, dir.n), ask |-> Former(s, dir), age |-> 0]}
  /\ UNCHANGED <<shard, dir, older, notes, owed, world>>
\* opFind: a shard of another epoch says so, and the client begins again.
Find(s, i) == \E c \in {d \in calls : d.id = s} :
  /\ i \in c.ask /\ shard[i].book[c.id] = None /\ shard[i].epoch = c.epoch
  /\ calls' = (calls \ {c}) \cup {[c EXCEPT !.ask = @ \ {i}]}
  /\ UNCHANGED <<shard, dir, older, notes, owed, world>>
Sells(s) == /\ owed' = [owed EXCEPT ![s] = Keep]
            /\ world' = [world EXCEPT !.twice = @ \/ owed[s] > 0]
Sell(s) == \E c \in {d \in calls : d.id = s} :
  LET b == shard[c.home] IN
  /\ c.ask = {} \/ Flaw("asks-home-only")
  /\ b.epoch = c.epoch \/ (b.epoch > c.epoch /\ Flaw("sells-by-any-epoch"))
  /\ b.book[c.id] = None /\ (b.free > 0 \/ Flaw("oversells"))
  /\ shard' = [shard EXCEPT ![c.home].free = @ - 1, ![c.home].sold = @ + (IF c.what = "sold" THEN 1 ELSE 0),
       ![c.home].book[c.id] = [state |-> c.what, left |-> IF c.what = "sold" THEN Keep ELSE Lease]]
  /\ IF c.what = "sold" THEN Sells(c.id) ELSE UNCHANGED <<owed, world>>
  /\ UNCHANGED <<dir, older, calls, notes>>
\* settle: Confirm and Return go to the shard that has the receipt, whatever its epoch.
Named(s, i) == i \in Former(s, dir) \cup {Home(s, dir.n)}
Confirm(s, i) ==
  /\ Named(s, i) /\ shard[i].book[s].state = "reserved"
  /\ shard' = [shard EXCEPT ![i].sold = @ + 1, ![i].book[s] = [state |-> "sold", left |-> Keep]]
  /\ Sells(s) /\ UNCHANGED <<dir, older, calls, notes>>
Return(s, i) ==
  /\ Named(s, i) /\ shard[i].book[s].state = "sold"
  /\ shard' = [shard EXCEPT ![i].sold = @ - 1, ![i].free = @ + 1, ![i].book[s] = [state |-> "returned", left |-> Keep]]
  /\ owed' = [owed EXCEPT ![s] = Keep] /\ UNCHANGED <<dir, older, calls, notes, world>>

(************************* Transfers ***************************************)

\* Pull: one note for each pair of shards; a transfer that is under way is answered again.
Pull(i, p) ==
  /\ i # p /\ (shard[i].free > 0 \/ Flaw("pulls-nothing")) /\ shard[i].seq[p] < Moves /\ (shard[i].out[p] = 0 \/ Flaw("pulls-over-a-note"))
  /\ shard' = [shard EXCEPT ![i].free = @ - 1, ![i].seq[p] = @ + 1, ![i].out[p] = shard[i].seq[p] + 1]
  /\ notes' = notes \cup {<<i, p, shard[i].seq[p] + 1>>}
  /\ UNCHANGED <<dir, older, calls, owed, world>>
Accept(i, p) == \E m \in {n \in notes : n[1] = i /\ n[2] = p} :
  /\ shard[m[2]].in[m[1]] = m[3] - 1 \/ (Flaw("accepts-twice") /\ shard[m[2]].free < 3)
  /\ shard' = [shard EXCEPT ![m[2]].in[m[1]] = m[3], ![m[2]].free = @ + 1]
  /\ UNCHANGED <<dir, older, calls, notes, owed, world>>
\* Clear follows an answer to Accept; a late one is about a note that is gone.
Clear(i, p) == \E m \in {n \in notes : n[1] = i /\ n[2] = p} :
  /\ shard[m[2]].in[m[1]] >= m[3] \/ Flaw("clears-first")
  /\ shard[m[1]].out[m[2]] = m[3] \/ (Flaw("clears-any") /\ shard[m[1]].out[m[2]] # 0)
  /\ shard' = [shard EXCEPT ![m[1]].out[m[2]] = 0]
  /\ UNCHANGED <<dir, older, calls, notes, owed, world>>

(************************* Rebalance ***************************************)

\* swap: a change begins.
SwapBegins ==
  /\ world.changes < Changes /\ dir.next = 0 /\ \A i \in Places : shard[i].epoch <= dir.epoch
  /\ dir' = [dir EXCEPT !.next = IF dir.n = Before THEN After ELSE Before] /\ older' = older \cup {dir}
  /\ world' = [world EXCEPT !.changes = @ + 1] /\ UNCHANGED <<shard, calls, notes, owed>>
\* The directory after the change; when receipts of the time before it end is known afterwards.
Changed(ends) == [epoch |-> dir.epoch + 1, n |-> dir.next, next |-> 0,
                  past |-> IF Flaw("forgets-at-once") THEN {} ELSE dir.past \cup {<<dir.n, ends + PastKept>>}]
\* tellShards: a shard's copy has the latest possible end.
Place(i) ==
  /\ dir.next # 0 /\ shard[i].epoch = dir.epoch
  /\ shard' = [shard EXCEPT ![i].epoch = dir.epoch + 1,
                            ![i].copy = IF Flaw("copy-forgets") THEN [Changed(0) EXCEPT !.past = {}] ELSE Changed(Lease)]
  /\ UNCHANGED <<dir, older, calls, notes, owed, world>>
Reserved(i) == {shard[i].book[s].left : s \in {t \in Ids : shard[i].book[t].state = "reserved"}}
Ends == LET all == {0} \cup UNION {Reserved(i) : i \in Places} IN CHOOSE x \in all : \A y \in all : x >= y
SwapEnds ==
  /\ dir.next # 0 /\ \A i \in Places : shard[i].epoch > dir.epoch
  /\ dir' = Changed(IF Flaw("ends-at-once") THEN 0 ELSE Ends) /\ older' = older \cup {dir}
  /\ UNCHANGED <<shard, calls, notes, owed, world>>
\* The directory is restored from an older copy, with the times that it had then.
Restore ==
  /\ world.restores < Restores /\ \E d \in older : dir' = d
  /\ world' = [world EXCEPT !.restores = @ + 1] /\ UNCHANGED <<shard, older, calls, notes, owed>>
\* raiseEpoch, adoptLater: a shard of a later epoch gives its copy.
AdoptLater(i) ==
  /\ shard[i].epoch > dir.epoch /\ \A j \in Places : shard[j].epoch = shard[i].epoch
  /\ dir' = shard[i].copy /\ UNCHANGED <<shard, older, calls, notes, owed, world>>

(************************* Time ********************************************)

\* lapse, and receipts that end.
Older(r) ==
  CASE r.left > 1 -> [r EXCEPT !.left = @ - 1]
    [] r.left <= 1 /\ r.state = "reserved" -> [state |-> "lapsed", left |-> Keep]
    [] OTHER -> None
Lapsing(i) == Cardinality({s \in Ids : shard[i].book[s].state = "reserved" /\ shard[i].book[s].left = 1})
Past(d) == [d EXCEPT !.past = {<<p[1], p[2] - 1>> : p \in {q \in d.past : q[2] > 1}}]
Tick ==
  /\ world.ticks < Times
  /\ shard' = [i \in Places |-> [shard[i] EXCEPT !.book = [s \in Ids |-> Older(shard[i].book[s])], !.free = @ + Lapsing(i),
                                                 !.copy = Past(@)]]
  /\ dir' = Past(dir) /\ older' = {Past(d) : d \in older}
  /\ calls' = {[c EXCEPT !.age = 1] : c \in {k \in calls : k.age = 0}}
  /\ owed' = [s \in Ids |-> Less(owed[s])] /\ world' = [world EXCEPT !.ticks = @ + 1] /\ UNCHANGED notes

Next == \/ \E s \in Ids : Begin(s) \/ Sell(s)
        \/ \E s \in Ids, i \in Places : Find(s, i) \/ Confirm(s, i) \/ Return(s, i)
        \/ \E i, p \in Places : Pull(i, p) \/ Accept(i, p) \/ Clear(i, p)
        \/ \E i \in Places : Place(i) \/ AdoptLater(i)
        \/ SwapBegins \/ SwapEnds \/ Restore \/ Tick
Spec == Init /\ [][Next]_vars

(************************* What must hold **********************************)

RECURSIVE Sum(_, _)
Sum(f, S) == IF S = {} THEN 0 ELSE LET x == CHOOSE y \in S : TRUE IN f[x] + Sum(f, S \ {x})
Held(i) == Cardinality({s \in Ids : shard[i].book[s].state = "reserved"})
Transit(i) == Cardinality({p \in Places : shard[i].out[p] > shard[p].in[i]})
\* No unit is lost, and none comes from nowhere.
Conservation == Sum([i \in Places |-> shard[i].free + shard[i].sold + Held(i) + Transit(i)], Places) = Units * Before
\* No shard sells, or gives away, what it does not have.
NotOversold == \A i \in Places : shard[i].free >= 0
SoldOnce == ~world.twice
\* A receipt is found by whoever reads the directory, if that is not older than its shards.
Current == dir.next = 0 /\ \A i \in Places : shard[i].epoch = dir.epoch
Findable == Current => \A i \in Places : \A s \in Ids : shard[i].book[s] # None => Named(s, i)
\* Two shards never sell one id.
OneReceipt == \A s \in Ids : Cardinality({i \in Places : shard[i].book[s].state \in {"sold", "reserved"}}) <= 1
\* What the properties are about does happen; each of these has to be refuted.
NeverFormer == \A c \in calls : c.ask = {}
NeverConfirmedAway == \A s \in Ids : \A i \in Places : shard[i].book[s].state = "sold" => i = Home(s, dir.n)
NeverOldDirectory == \A i \in Places : shard[i].epoch <= dir.epoch + 1
NeverTwoNotes == Cardinality(notes) < 2
=============================================================================
