// Package check judges the history of a lock: what many processes asked for,
// got, lost and released, with the faults that happened meanwhile.
//
// Each process writes an [Event] before every call and one after it. A process
// that is killed therefore leaves calls whose outcome is unknown, and no call
// that nobody knows of. A [Checker] reads the events of all processes and makes
// of each call an [Op]. The hold that came of it counts from when Lock returned
// to the first of these: Unlock was called, the claim ended, the loss was told,
// the process was killed. That is what its user was entitled to believe.
//
//	C1  exclusion    holds of one name never take more than its limit together
//	C2  register     a resource that refuses old tokens loses no write, and refuses nobody who holds
//	C3  tokens       they are positive, distinct and grow in the order of grants
//	C4  order        who had a place before another asked is granted first
//	C5  linearizable slices of the history of each lock, by Porcupine
//	C6  loss         is told once, in time, and only of what was lost
//	C7  liveness     after the last fault every name can be taken, and every wait ends
//	C8  residue      the store keeps nothing of it
//	C9  answers      every error is one that the call may give
//
// The Checker judges in windows, so that its memory does not grow with the
// length of a run. Package torture makes such histories.
package check
