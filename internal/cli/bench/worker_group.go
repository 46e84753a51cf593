package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// workerGroup are the worker processes of one implementation in one scenario.
type workerGroup struct {
	workers []*workerHandle
	beside  []*workerHandle // those of Spec.Beside, which do nothing
}

// workerHandle is a worker, seen from the one who runs it.
type workerHandle struct {
	*pipe
	in     io.Closer
	cmd    *exec.Cmd // nil for one in this process
	stderr stderrTail
	exited chan struct{}
	err    error // how it ended, after exited
}

// stderrTail keeps the end of what a worker writes to its standard error.
type stderrTail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (t *stderrTail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if n := t.buf.Len() - 4<<10; n > 0 {
		t.buf.Next(n)
	}
	return len(b), nil
}

// startWorkers starts the workers of a scenario and has them open their clients.
func (r *runner) startWorkers(ctx context.Context, t Target, s Scenario) (*workerGroup, error) {
	c := new(workerGroup)
	first := 0
	for i := range s.Processes {
		w, err := r.start(ctx)
		if err != nil {
			return nil, errors.Join(err, c.stopAll())
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
		o := request{Do: doOpen, Spec: spec, Scenario: s, First: first, Clients: clients}
		first += clients
		if err := w.send(o); err != nil {
			return nil, errors.Join(w.withStderr(err), c.stopAll())
		}
	}
	if _, err := c.replies(ctx); err != nil {
		return nil, errors.Join(err, c.stopAll())
	}
	if t.Beside > 0 {
		if err := r.startBeside(ctx, t, s, c); err != nil {
			return nil, errors.Join(err, c.stopAll())
		}
	}
	return c, nil
}

// idleTime is the time for which clients of Spec.Beside are idle before others are
// measured. A client may take so long to give up what it needed for its lock.
const idleTime = 20 * time.Second

// startBeside starts the process of [Spec.Beside], and waits until its clients have
// been idle for a while.
func (r *runner) startBeside(ctx context.Context, t Target, s Scenario, c *workerGroup) error {
	w, err := r.start(ctx)
	if err != nil {
		return err
	}
	c.beside = append(c.beside, w)
	spec := t.Spec
	spec.Prefix = fmt.Sprintf("%s%s/beside/", t.Prefix, s.Name)
	only := workerGroup{workers: c.beside}
	for _, o := range []request{
		{Do: doOpen, Spec: spec, Scenario: Scenario{Name: s.Name, Clients: t.Beside}, Clients: t.Beside},
		{Do: doOnce},
	} {
		if _, err := only.all(ctx, o); err != nil {
			return err
		}
	}
	sleepUntil(ctx, now()+int64(idleTime))
	return nil
}

func (r *runner) start(ctx context.Context) (*workerHandle, error) {
	w := &workerHandle{exited: make(chan struct{})}
	if len(r.Command) == 0 {
		ir, iw := io.Pipe()
		or, ow := io.Pipe()
		w.pipe, w.in = newPipe(or, iw), iw
		go func() {
			w.err = Work(context.WithoutCancel(ctx), ir, ow, r.Open)
			_ = ir.Close()
			_ = ow.Close()
			close(w.exited)
		}()
		return w, nil
	}
	w.cmd = exec.Command(r.Command[0], r.Command[1:]...)
	w.cmd.Stderr = &w.stderr
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
		close(w.exited)
	}()
	return w, nil
}

// withStderr is the error of a conversation, with what the worker said at last.
func (w *workerHandle) withStderr(err error) error {
	w.stderr.mu.Lock()
	defer w.stderr.mu.Unlock()
	if w.stderr.buf.Len() > 0 {
		return fmt.Errorf("bench: a worker: %w; it said: %s", err, bytes.TrimSpace(w.stderr.buf.Bytes()))
	}
	return fmt.Errorf("bench: a worker: %w", err)
}

// replies waits for one of each worker.
func (c *workerGroup) replies(ctx context.Context) ([]*response, error) {
	all := make([]*response, len(c.workers))
	errs := make([]error, len(c.workers))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, w := range c.workers {
			all[i], errs[i] = w.nextReply()
		}
	}()
	select {
	case <-done:
		return all, errors.Join(errs...)
	case <-ctx.Done():
	}
	// Holders release and waiters leave, as far as there is time.
	for _, w := range c.workers {
		_ = w.in.Close()
	}
	select {
	case <-done:
	case <-time.After(stopTimeout):
		for _, w := range c.workers {
			w.kill()
		}
		<-done
	}
	return nil, context.Cause(ctx)
}

func (w *workerHandle) nextReply() (*response, error) {
	a, err := w.response()
	switch {
	case err != nil:
		return nil, w.withStderr(err)
	case a.Overlap:
		return nil, fmt.Errorf("%w (%s)", ErrOverlap, a.Err)
	case a.Err != "":
		return nil, errors.New(a.Err)
	}
	return a, nil
}

// all tells every worker the same and collects the answers.
func (c *workerGroup) all(ctx context.Context, o request) ([]*response, error) {
	for _, w := range c.workers {
		if err := w.send(o); err != nil {
			return nil, w.withStderr(err)
		}
	}
	return c.replies(ctx)
}

func (w *workerHandle) kill() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
	}
}

// stopTimeout bounds the time in which workers release their locks.
const stopTimeout = 20 * time.Second

// stopAll ends the workers and waits for them.
func (c *workerGroup) stopAll() error {
	all := slices.Concat(c.workers, c.beside)
	for _, w := range all {
		_ = w.in.Close()
	}
	late := time.After(stopTimeout)
	var err error
	for _, w := range all {
		select {
		case <-w.exited:
		case <-late:
			err = errors.New("bench: a worker does not end")
			w.kill()
			<-w.exited
		}
	}
	return err
}
