package lockauth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/lockserver"
)

// ErrUnchanged reports that Reload found what it had found before.
var ErrUnchanged = errors.New("lockauth: the file is unchanged")

// File is a file of rules that can be read again. It is safe for concurrent use.
type File struct {
	path  string
	rules atomic.Pointer[Rules]

	mu      sync.Mutex
	data    []byte // that gave rules
	problem string // text of the last error of Reload, empty after a success
}

// OpenFile reads a file of rules. It returns an error for a file that cannot be read or
// parsed, and for one that others than its owner may write, or that belongs to
// another user than this process's and root.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Identify identifies the sender of a request by the rules that are in force; see
// Rules.Identify. Use it as the field Identify of lockserver.Auth.
func (f *File) Identify(r *http.Request) (lockserver.Principal, error) {
	return f.rules.Load().Identify(r)
}

// Reload reads the file again. After an error the rules that were in force stay so.
// Reload returns ErrUnchanged if the file, or its error, is the same as at the last
// call, so that a caller that calls it at intervals can report the others.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := readRules(f.path)
	if err == nil && f.problem == "" && f.data != nil && bytes.Equal(data, f.data) {
		return ErrUnchanged
	}
	var rules *Rules
	if err == nil {
		rules, err = ParseRules(data)
	}
	if err != nil {
		if text := err.Error(); text != f.problem {
			f.problem = text
			return err
		}
		return ErrUnchanged
	}
	f.problem, f.data = "", data
	f.rules.Store(rules)
	return nil
}

// readRules reads a file that nobody else may write.
func readRules(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("lockauth: %s is not a file", path) // opening a pipe would block
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lockauth: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("lockauth: %w", err)
	}
	if err := checkWriters(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("lockauth: %w", err)
	}
	return data, nil
}
