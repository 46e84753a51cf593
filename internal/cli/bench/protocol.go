package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// request is a request to a worker, a line of JSON. The first is Open.
type request struct {
	Do string `json:"do"`

	// Of Open.
	Spec     Spec     `json:"spec,omitzero"`
	Scenario Scenario `json:"scenario,omitzero"`
	First    int      `json:"first,omitempty"` // of the clients of this process
	Clients  int      `json:"clients,omitempty"`
	Profile  string   `json:"profile,omitempty"` // how the file for a CPU profile of the next run begins

	// Of Run and Idle, on the clock that processes share.
	Start int64 `json:"start,omitempty"`
	End   int64 `json:"end,omitempty"`
}

// The requests to a worker.
const (
	doOpen = "open"
	doRun  = "run"  // cycles, from Start to End
	doHold = "hold" // take all locks of an idle scenario
	doIdle = "idle" // use another lock meanwhile
	doTake = "take" // take the shared lock once, and keep it
	doDrop = "drop" // give it back
	doOnce = "once" // lock once with each client, each another name
)

// response is the answer of a worker, a line of JSON and then its records.
type response struct {
	Err     string `json:"err,omitempty"`
	Overlap bool   `json:"overlap,omitempty"` // Err is an overlap

	Records    int     `json:"records"`
	Mallocs    float64 `json:"mallocs"`
	Bytes      float64 `json:"bytes"`
	CPU        int64   `json:"cpu"` // ns
	Goroutines float64 `json:"goroutines"`
	PerLock    float64 `json:"per_lock"` // bytes
	Counts     Counts  `json:"counts"`
	Counted    bool    `json:"counted"`

	records []record
}

// pipe is one end of a conversation of lines and records.
type pipe struct {
	in  *bufio.Reader
	out *bufio.Writer
}

func newPipe(in io.Reader, out io.Writer) *pipe {
	return &pipe{bufio.NewReaderSize(in, 64<<10), bufio.NewWriterSize(out, 64<<10)}
}

func (p *pipe) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	_, err = p.out.Write(append(b, '\n'))
	if a, ok := v.(*response); ok && err == nil {
		err = writeRecords(p.out, a.records)
	}
	return errors.Join(err, p.out.Flush())
}

func (p *pipe) line(v any) error {
	b, err := p.in.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func (p *pipe) response() (*response, error) {
	a := new(response)
	err := p.line(a)
	if err == nil && a.Records > 0 {
		a.records, err = readRecords(p.in, make([]record, 0, a.Records), a.Records)
	}
	return a, err
}
