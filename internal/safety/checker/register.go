package checker

import "sync"

// Register is a resource that a lock protects: a number for each name. Holders
// read it, and write it back plus one. The register has a guard, which refuses
// tokens lower than the highest it has met, also for reads; and a twin without
// a guard, which accepts the same writes and goes wrong when a holder writes
// late. It is safe for concurrent use; the zero value is ready.
type Register struct {
	mu    sync.Mutex
	cells map[string]*cell
}

type cell struct {
	highest uint64
	by      Key
	value   int64
	twin    int64
	twins   int64 // writes that the twin accepted
}

// Answer is the register's answer to one access.
type Answer struct {
	OK      bool   // the guard admitted the access
	Value   int64  // the guarded value after it
	Twin    int64  // the twin's
	Highest uint64 // the highest token met before
}

func (r *Register) cell(name string) *cell {
	if r.cells == nil {
		r.cells = make(map[string]*cell)
	}
	c := r.cells[name]
	if c == nil {
		c = &cell{}
		r.cells[name] = c
	}
	return c
}

// admit applies the guard's rule: it refuses a lower token, and an equal token
// of another hold.
func (c *cell) admit(token uint64, by Key) bool {
	if token < c.highest || token == c.highest && c.by != by {
		return false
	}
	c.highest, c.by = token, by
	return true
}

// Read returns the values of a name to a hold.
func (r *Register) Read(name string, token uint64, by Key) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cell(name)
	a := Answer{Highest: c.highest}
	a.OK = c.admit(token, by)
	a.Value, a.Twin = c.value, c.twin
	return a
}

// Write sets the values of a name to those that a hold computed.
func (r *Register) Write(name string, token uint64, by Key, value, twin int64) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cell(name)
	a := Answer{Highest: c.highest}
	if a.OK = c.admit(token, by); a.OK {
		c.value = value
	}
	c.twin = twin
	c.twins++
	a.Value, a.Twin = c.value, c.twin
	return a
}

// Corrupted returns the number of writes that the twins lost, over all names.
func (r *Register) Corrupted() (lost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cells {
		lost += c.twins - c.twin
	}
	return lost
}
