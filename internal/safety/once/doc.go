// Package once checks that each slot of a job is finished exactly once.
//
// A [World] has hosts whose clocks differ, as many as wanted, and jobs of which
// every host starts each slot by its own clock, with [holdfast.Client.Once]. It
// kills hosts and cuts them off from the store, often the one that runs a job, and
// at times between the return of the function and the answer of the store. Run
// then judges what happened, and returns a [Report].
//
// The world runs in fake time, in a testing/synctest bubble on a store in memory,
// and in real time on any store with [driver.Traits].Marks.
package once
