----------------------------- MODULE LineStory ------------------------------
(***************************************************************************)
(* What a counterexample of module Line shows of a state: two clients, and *)
(* the queue at the store. The pictures of docs/proof are made of it.      *)
(***************************************************************************)
EXTENDS Line

CONSTANTS a, b

Says(t) ==
  LET c == client[t]
      first == IF c.paused THEN <<"stopped,">> ELSE <<>>
  IN first \o (IF c.state = "held" /\ c.claim > 0 THEN <<"holds,", "token", c.token, "|", c.claim, "ticks", "left">>
               ELSE IF c.state = "held" THEN <<"its", "claim", "is", "over">>
               ELSE IF c.state = "new" THEN <<"-">>
               ELSE IF c.answer = "held" THEN <<"an", "answer", "is", "on", "its", "way">>
               ELSE <<c.state>>)
Entry(t) == <<t>> \o (IF store.token[t] > 0 THEN <<"has", "token", store.token[t]>> ELSE <<"waits">>)
            \o (IF Clocks = "none" THEN <<>> ELSE <<",", store.left[t], "ticks", "left">>)
Picture == <<Says(a), Says(b),
             IF store.queue = <<>> THEN <<"nobody">>
             ELSE Entry(store.queue[1]) \o (IF Len(store.queue) = 1 THEN <<>> ELSE <<"|">> \o Entry(store.queue[2]))>>
=============================================================================
