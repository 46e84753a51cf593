// Package checker judges the history of a lock: the calls of many processes,
// their holds, losses and releases, and the faults in the meantime.
//
// Each process writes an [Event] before every call and one after it. So a
// process that is killed leaves calls of unknown outcome, and no call without a
// record. A [Checker] reads the events of all processes and makes an [Op] of
// each call. Its hold counts from the return of Lock to the first of these: the
// call of Unlock, the end of the claim, the report of the loss, the kill of the
// process. For that time its user was entitled to rely on the hold.
//
//	C1  exclusion    holds of one name never take more than its limit together
//	C2  register     a resource that refuses old tokens loses no write, and refuses no holder
//	C3  tokens       they are positive, distinct and grow in the order of grants
//	C4  order        a client that has a place before another asks is granted first
//	C5  linearizable slices of the history of each lock, by Porcupine
//	C6  loss         each loss is reported once and in time, and nothing else is
//	C7  liveness     after the last fault every name can be taken, and every wait ends
//	C8  residue      the store keeps nothing of the run
//	C9  answers      every error is one that the call may return
//	C10 work         no other holder is let in while the function of a hold that its own client ended still runs
//
// The Checker judges in windows, so that its memory does not grow with the
// length of a run. Package torture makes such histories.
package checker
