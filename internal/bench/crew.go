package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// crew are the worker processes of one implementation in one scenario.
type crew struct {
	workers []*colleague
}

// colleague is a worker, seen from the one who runs it.
type colleague struct {
	*pipe
	in   io.Closer
	cmd  *exec.Cmd // nil for one in this process
	said tail
	gone chan struct{}
	err  error // how it ended, after gone
}

// tail keeps the end of what a worker writes to its standard error.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if n := t.buf.Len() - 4<<10; n > 0 {
		t.buf.Next(n)
	}
	return len(b), nil
}

// assemble starts the workers of a scenario and has them open their clients.
func (r *runner) assemble(ctx context.Context, t Target, s Scenario) (*crew, error) {
	c := new(crew)
	first := 0
	for i := range s.Processes {
		w, err := r.start(ctx)
		if err != nil {
			return nil, errors.Join(err, c.dismiss())
		}
		c.workers = append(c.workers, w)
		clients := s.Clients / s.Processes
		if i < s.Clients%s.Processes {
			clients++
		}
		spec := t.Spec
		spec.Prefix = fmt.Sprintf("%s%s/", t.Prefix, s.Name)
		if spec.TTL == 0 {
			spec.TTL = s.TTL
		}
		o := order{Do: doOpen, Spec: spec, Scenario: s, First: first, Clients: clients}
		first += clients
		if err := w.send(o); err != nil {
			return nil, errors.Join(w.fault(err), c.dismiss())
		}
	}
	if _, err := c.answers(ctx); err != nil {
		return nil, errors.Join(err, c.dismiss())
	}
	return c, nil
}

func (r *runner) start(ctx context.Context) (*colleague, error) {
	w := &colleague{gone: make(chan struct{})}
	if len(r.Command) == 0 {
		ir, iw := io.Pipe()
		or, ow := io.Pipe()
		w.pipe, w.in = newPipe(or, iw), iw
		go func() {
			w.err = Work(context.WithoutCancel(ctx), ir, ow, r.Open)
			_ = ir.Close()
			_ = ow.Close()
			close(w.gone)
		}()
		return w, nil
	}
	w.cmd = exec.Command(r.Command[0], r.Command[1:]...)
	w.cmd.Stderr = &w.said
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: a worker: %w", err)
	}
	w.pipe, w.in = newPipe(out, in), in
	go func() {
		w.err = w.cmd.Wait()
		close(w.gone)
	}()
	return w, nil
}

// fault is the error of a conversation, with what the worker said at last.
func (w *colleague) fault(err error) error {
	w.said.mu.Lock()
	defer w.said.mu.Unlock()
	if w.said.buf.Len() > 0 {
		return fmt.Errorf("bench: a worker: %w; it said: %s", err, bytes.TrimSpace(w.said.buf.Bytes()))
	}
	return fmt.Errorf("bench: a worker: %w", err)
}

// answers waits for one of each worker.
func (c *crew) answers(ctx context.Context) ([]*answer, error) {
	all := make([]*answer, len(c.workers))
	errs := make([]error, len(c.workers))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, w := range c.workers {
			all[i], errs[i] = w.answered()
		}
	}()
	select {
	case <-done:
		return all, errors.Join(errs...)
	case <-ctx.Done():
	}
	// Who holds gives back, and who waits leaves, as far as there is time.
	for _, w := range c.workers {
		_ = w.in.Close()
	}
	select {
	case <-done:
	case <-time.After(dismissTime):
		for _, w := range c.workers {
			w.kill()
		}
		<-done
	}
	return nil, context.Cause(ctx)
}

func (w *colleague) answered() (*answer, error) {
	a, err := w.answer()
	switch {
	case err != nil:
		return nil, w.fault(err)
	case a.Overlap:
		return nil, fmt.Errorf("%w (%s)", ErrOverlap, a.Err)
	case a.Err != "":
		return nil, errors.New(a.Err)
	}
	return a, nil
}

// all tells every worker the same and collects the answers.
func (c *crew) all(ctx context.Context, o order) ([]*answer, error) {
	for _, w := range c.workers {
		if err := w.send(o); err != nil {
			return nil, w.fault(err)
		}
	}
	return c.answers(ctx)
}

func (w *colleague) kill() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
	}
}

// dismissTime is how long workers may take to give back what they hold.
const dismissTime = 20 * time.Second

// dismiss ends the workers and waits for them.
func (c *crew) dismiss() error {
	for _, w := range c.workers {
		_ = w.in.Close()
	}
	late := time.After(dismissTime)
	var err error
	for _, w := range c.workers {
		select {
		case <-w.gone:
		case <-late:
			err = errors.New("bench: a worker does not end")
			w.kill()
			<-w.gone
		}
	}
	return err
}
