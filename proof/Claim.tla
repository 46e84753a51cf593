-------------------------------- MODULE Claim -------------------------------
(***************************************************************************)
(* The clocks of one hold: how long its client may believe in it. The      *)
(* store renews the place when it handles a renewal, and grants it to      *)
(* another when its time is over; the client counts from before it sent.   *)
(* A resource takes writes and looks at fencing tokens.                    *)
(*                                                                         *)
(* Assumed (A1): of two clocks one loses at most one tick against the      *)
(* other in every Rate ticks, for ever. A timer fires at most Margin ticks *)
(* late while the process runs. Pauses, and requests and answers on their  *)
(* way, last as long as they like; answers overtake each other. (A4): the  *)
(* client's clock goes on while the machine is suspended.                  *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
  Lease,    \* ticks that the store promises
  Off,      \* ticks taken off for the clocks: the 1 % of claimEnd
  Margin,   \* ticks taken off for the telling: the 20 ms of claimEnd
  Keep,     \* ticks that the store keeps the place: driver.Keep, 4 % more
  Rate,     \* ticks between two in which the clocks differ
  Prompt,   \* whether a program that runs writes at once when it has looked
  Bug

ASSUME Lease > Off + Margin /\ Rate > 0

VARIABLES
  left,     \* ticks until the store may grant the place to another
  holder,   \* at the store: "me", then "other"
  request,  \* two renewals under way: ["no" "sent" "handled", ticks of its lease left]
  claim,    \* ticks that the client may believe, 0 when it is over
  late,     \* ticks since its end, until it is told
  state,    \* "held", then "over"; that is what its context says
  process,  \* "runs", "stopped" or "asleep", with the machine
  looked,   \* the program saw Err() == nil, and is about to write
  highest,  \* the highest token that the resource has seen: 1 is mine, 2 the other's
  wrote,    \* the token of the last write that it took
  since     \* ticks since the clocks differed

vars == <<left, holder, request, claim, late, state, process, looked, highest, wrote, since>>
clocks == <<left, claim, late, since>>

Flaw(name) == Bug = name
Less(a) == IF a > 0 THEN a - 1 ELSE 0
Max(a, b) == IF a > b THEN a ELSE b
None == [at |-> "no", age |-> 0]

Init == /\ left = Keep /\ holder = "me" /\ request = [r \in {1, 2} |-> None]
        /\ claim = Lease - Off - Margin /\ late = 0 /\ state = "held" /\ process = "runs"
        /\ looked = FALSE /\ highest = 1 /\ wrote = 1 /\ since = Rate

Runs == process = "runs" /\ state = "held"
ErrNil == Runs /\ claim > 0   \* Err looks at the clock, not at the timer

Send(r) == /\ Runs /\ claim > 0 /\ request[r] = None
           /\ request' = [request EXCEPT ![r] = [at |-> "sent", age |-> Lease]]
           /\ UNCHANGED <<clocks, holder, state, process, looked, highest, wrote>>
\* Renew 2: what is gone is not made again.
Handle(r) == /\ request[r].at = "sent" /\ holder = "me"
             /\ request' = [request EXCEPT ![r].at = "handled"] /\ left' = Keep
             /\ UNCHANGED <<holder, claim, late, since, state, process, looked, highest, wrote>>
\* A claim is extended by what was promised, counted from sending. It never moves
\* back: answers overtake each other.
Answer(r) ==
  LET n == IF Flaw("from-answer") THEN Lease ELSE request[r].age
      good == IF n > Off + Margin THEN n - Off - Margin ELSE 0
  IN /\ Runs /\ request[r].at = "handled" /\ claim > 0
     /\ claim' = IF Flaw("moves-back") THEN Max(good, 1) ELSE Max(claim, good)
     /\ request' = [request EXCEPT ![r] = None]
     /\ UNCHANGED <<left, late, since, holder, state, process, looked, highest, wrote>>
Forget(r) == /\ request[r] # None /\ request' = [request EXCEPT ![r] = None]
             /\ UNCHANGED <<clocks, holder, state, process, looked, highest, wrote>>

\* The store's clock, and the client's: mostly both, now and then one alone.
Waits == Prompt => ~(looked /\ process = "runs")
StoreTicks == Waits /\ left' = Less(left)
ClientTicks == /\ Waits
               /\ Runs /\ claim = 0 => late < Margin   \* the timer fires in time
               /\ request' = [r \in {1, 2} |-> [request[r] EXCEPT !.age = Less(@)]]
               /\ IF Flaw("monotonic") /\ process = "asleep" THEN UNCHANGED <<claim, late>>
                  ELSE claim' = Less(claim) /\ late' = IF Runs /\ claim = 0 THEN late + 1 ELSE late
Others == <<holder, state, process, looked, highest, wrote>>
Tick == StoreTicks /\ ClientTicks /\ since' = (IF since < Rate THEN since + 1 ELSE since) /\ UNCHANGED Others
Slow == since = Rate /\ StoreTicks /\ since' = 0 /\ UNCHANGED <<claim, late, request, Others>>
Fast == since = Rate /\ ClientTicks /\ since' = 0 /\ UNCHANGED <<left, Others>>

Fire == /\ Runs /\ claim = 0 /\ state' = "over"
        /\ UNCHANGED <<clocks, holder, request, process, looked, highest, wrote>>
Stop == /\ process = "runs" /\ process' \in {"stopped", "asleep"}
        /\ UNCHANGED <<clocks, holder, request, state, looked, highest, wrote>>
\* The first instruction after a pause looks at the clock.
Resume == /\ process # "runs" /\ process' = "runs"
          /\ state' = IF claim = 0 /\ ~Flaw("resume-blind") THEN "over" ELSE state
          /\ UNCHANGED <<clocks, holder, request, looked, highest, wrote>>

\* The place is over at the store, and another one waits.
Expire == /\ Waits /\ holder = "me" /\ (left = 0 \/ Flaw("clock-jumps")) /\ holder' = "other"
          /\ UNCHANGED <<clocks, request, state, process, looked, highest, wrote>>
Look == ErrNil /\ looked' = TRUE /\ UNCHANGED <<clocks, holder, request, state, process, highest, wrote>>
\* A7: the resource refuses a token lower than the highest it has seen.
Takes(token) == token >= highest \/ Flaw("no-guard")
Write == /\ process = "runs" /\ looked /\ looked' = FALSE
         /\ highest' = Max(highest, 1) /\ wrote' = IF Takes(1) THEN 1 ELSE wrote
         /\ UNCHANGED <<clocks, holder, request, state, process>>
OtherWrites == /\ Waits /\ holder = "other" /\ highest' = 2 /\ wrote' = 2
               /\ UNCHANGED <<clocks, holder, request, state, process, looked>>

Next == \/ \E r \in {1, 2} : Send(r) \/ Handle(r) \/ Answer(r) \/ Forget(r)
        \/ Tick \/ Slow \/ Fast \/ Fire \/ Stop \/ Resume \/ Expire \/ Look \/ Write \/ OtherWrites
Spec == Init /\ [][Next]_vars

(************************* What must hold **********************************)

\* Err() == nil: no other hold is granted.
ErrRight == ErrNil => holder = "me"
\* A client that runs has told the loss before another is granted.
ToldInTime == Runs => holder = "me"
\* No write is taken with a token lower than one that was taken.
FenceRight == wrote = highest
\* The claim never moves back, but by the clock.
Monotone == [][claim' >= claim \/ claim' = claim - 1]_vars
\* Nothing written too late is refused: what a guard is for. It has to be refuted.
NeverRefused == [][~(looked /\ ~looked' /\ wrote' = 2)]_vars

\* What a counterexample shows of a state.
Picture ==
  <<(IF process = "runs" THEN <<>> ELSE <<"stopped,">>)
    \o (IF state = "over" THEN <<"knows", "of", "the", "loss">>
        ELSE IF claim > 0 THEN <<"holds,", claim, "ticks", "left">> ELSE <<"its", "claim", "is", "over">>)
    \o (IF looked THEN <<"|", "about", "to", "write">> ELSE <<>>),
    IF holder = "other" THEN <<"holds,", "token", 2>> ELSE <<"waits">>,
    IF holder = "other" THEN <<"client", 2, "has", "token", 2>> ELSE <<"client", 1, "has", "token", 1, "|", left, "ticks", "left">>,
    <<"last", "write:", "token", wrote, "|", "highest", "seen:", "token", highest>> >>
=============================================================================
