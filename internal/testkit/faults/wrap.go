package faults

import "github.com/holdfast-go/holdfast/driver"

// Driver is a driver with a plan of faults before it.
type Driver struct {
	Hooked
	*Run
}

// Wrap puts a plan before a driver. It panics when a rule of the plan cannot
// happen to what it is for.
func Wrap(d driver.Driver, p Plan) *Driver {
	r := p.Begin()
	return &Driver{Hooked: Hooked{Driver: d, OnRequest: r.Request, OnPush: r.Push}, Run: r}
}

// Close implements [driver.Driver]. Requests that are still on their way
// arrive before the driver is closed; pushes do not.
func (d *Driver) Close() error {
	d.End()
	return d.Hooked.Close()
}
