// Package sim runs the whole of the lock, but for the network, in fake time: the
// core and a store in memory, in a bubble of testing/synctest, with every
// request, answer and push between them on a way of its own.
//
// A seed makes a [Schedule]: how many clients there are, what they ask for, how
// long each request is on its way to the store and each answer back, which of
// them are lost, held past their caller's patience or doubled, when a client is
// cut off or killed, when the store refuses to serve, and when its clock steps.
// The same seed makes the same schedule; only the order of goroutines that run
// at the very same moment is the runtime's. Package check judges what came of
// it, and leases of seconds cost no time, so that a build can afford thousands
// of schedules.
package sim
