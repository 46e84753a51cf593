//go:build unix

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

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

// console writes results to standard output and messages to standard error, as text
// or as JSON.
type console struct {
	root  *cobra.Command // has the streams
	json  bool
	quiet bool // of run: print errors only
}

func (c *console) stdout() io.Writer { return c.root.OutOrStdout() }
func (c *console) stderr() io.Writer { return c.root.ErrOrStderr() }

func (c *console) outJSON(v any) error { return writeJSON(c.stdout(), v) }

// errJSON writes to standard error. A failed write is ignored: nobody reads it.
func (c *console) errJSON(v any) { _ = writeJSON(c.stderr(), v) }

// printWarning writes a warning.
func (c *console) printWarning(detail, advice string) {
	if c.json {
		c.errJSON(struct {
			Event  string `json:"event"`
			Detail string `json:"detail"`
			Advice string `json:"advice"`
		}{"warning", detail, advice})
		return
	}
	fmt.Fprintf(c.stderr(), "holdfast: warning: %s (instead: %s)\n", detail, advice)
}

// printDefaultStore prints which store is used when none was given, because a
// variable that was meant to be set looks the same.
func (c *console) printDefaultStore(l location) {
	switch {
	case !l.isDefault || c.quiet:
	case c.json:
		c.errJSON(struct {
			Event  string `json:"event"`
			Store  string `json:"store"`
			Detail string `json:"detail"`
		}{"store", l.shown(), defaultStoreText})
	default:
		fmt.Fprintf(c.stderr(), "holdfast: %s: using %s, which only this user's processes on this machine share\n", defaultStoreText, l.shown())
	}
}

const defaultStoreText = "no --store, and " + storeVar + " is not set"
