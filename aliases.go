package holdfast

import "github.com/holdfast-go/holdfast/driver"

// The types of package driver that a user of Holdfast meets. Only the author of
// a driver imports that package.
type (
	// Driver is a store, as New takes it.
	Driver = driver.Driver
	// Traits are the abilities and bounds of a store, as Client.Traits returns
	// them.
	Traits = driver.Traits
	// Finding is the result of one examination by Client.Check.
	Finding = driver.Finding
	// Level grades a Finding.
	Level = driver.Level
)

// The levels of a Finding, from good to bad.
const (
	// LevelOK: as it should be.
	LevelOK = driver.OK
	// LevelWarning: weaker than it could be; the promises hold but for the
	// exception that the finding names.
	LevelWarning = driver.Warning
	// LevelProblem: a promise does not hold, or the lock does not work.
	LevelProblem = driver.Problem
)
