// Package sim runs the whole lock, except the network, in fake time: the core
// and a store in memory, in a bubble of testing/synctest. Every request, answer
// and push between them takes a simulated way of its own.
//
// A seed determines a [Schedule]: the number of clients and their calls, the
// time that each request and each answer takes, which of them are lost, held
// past their caller's patience or doubled, when a client is cut off or killed,
// when the store refuses to serve, and when its clock steps. The same seed
// makes the same schedule; only the order of goroutines that run at the same
// moment depends on the runtime. Package check judges the result. Leases of
// seconds cost no time, so a build can afford thousands of schedules.
package sim
