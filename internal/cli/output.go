//go:build unix

package cli

import "io"

// output is standard output. It keeps the first error, so that a verb whose
// result was not written fails, whichever call wrote it.
type output struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}
