// Package trace records what a store was asked and what it answered, so that the
// specification of the queue in folder proof can be held against it.
//
// A [Recorder] stands between the core and drivers of one store and notes each
// request in the order in which the store carried it out, as an [Event], one JSON
// object in a line. [Split] cuts the events of a run into traces, one for each
// lock, and [Module] writes traces as a module of TLA+, which module Trace of
// folder proof accepts or refuses. Command internal/proof does all of it:
// make proof-traces.
//
// A driver that the recorder wraps also notes what the core tells its user: the events of an
// Observer, and what becomes of holds. They stand between the requests, so that a hold
// is judged by what its client has heard.
//
// The recorder serialises requests, so that the order of the events is the order of
// their effects. One for stores on servers ([NewServerRecorder]) carries each request
// out to its end: there only the time of an effect stays unknown. One for clients that are
// cut off ([NewCutRecorder]) notes which outcomes they were not told.
package trace
