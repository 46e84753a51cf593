package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

var (
	ctxType  = reflect.TypeFor[context.Context]()
	errType  = reflect.TypeFor[error]()
	nameType = reflect.TypeFor[iter.Seq2[string, error]]()
)

// TestNilArgumentIsAnError calls each method of the API with one nil context,
// function or option: the error is plain and comes at once, and nothing is
// locked.
func TestNilArgumentIsAnError(t *testing.T) {
	c := client(t, memlock.New(memlock.NewStore()))
	for _, receiver := range []any{c, c.Mutex("a"), c.RWMutex("b"), c.Semaphore("c", 2), c.Multi([]string{"a", "b"})} {
		v := reflect.ValueOf(receiver)
		for m, f := range v.Methods() {
			for i := range f.Type().NumIn() {
				args := validArgs(t, f.Type())
				switch in := f.Type().In(i); in.Kind() {
				case reflect.Interface, reflect.Func:
					args[i] = reflect.Zero(in)
				case reflect.Slice:
					if !f.Type().IsVariadic() || i < f.Type().NumIn()-1 {
						continue
					}
					args = append(args, reflect.Zero(in.Elem())) // a nil option
				default:
					continue
				}
				what := fmt.Sprintf("%v.%s with argument %d nil", v.Type(), m.Name, i+1)
				wantPlain(t, what, "nil", f.Call(args))
			}
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if n := tickets(t, c, name); n != 0 {
			t.Errorf("%d tickets of %s", n, name)
		}
	}
	for what, opt := range map[string]holdfast.ClientOption{"option 1 of 1 is nil": nil, "the Observer is nil": holdfast.WithObserver(nil)} {
		if _, err := holdfast.New(memlock.New(memlock.NewStore()), opt); err == nil || err.Error() != "holdfast: "+what {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, d := range map[string]holdfast.Driver{"nil": nil, "nil pointer": (*memlock.Driver)(nil)} {
		if _, err := holdfast.New(d); err == nil || err.Error() != "holdfast: the driver is nil" {
			t.Errorf("%s: %v", what, err)
		}
	}
	var none context.Context
	if n := holdfast.Token(none, "a"); n != 0 {
		t.Errorf("token %d of no context", n)
	}
}

// TestValuesThatNobodyMade calls each method of nil pointers and of zero values:
// those that return errors return a plain one.
func TestValuesThatNobodyMade(t *testing.T) {
	for _, x := range []struct {
		receiver any
		want     string
	}{
		{(*holdfast.Client)(nil), "New did not make"}, {new(holdfast.Client), "New did not make"},
		{(*holdfast.Mutex)(nil), "no Client made"}, {new(holdfast.Mutex), "no Client made"},
		{(*holdfast.RWMutex)(nil), "no Client made"}, {new(holdfast.RWMutex), "no Client made"},
		{(*holdfast.Semaphore)(nil), "no Client made"}, {new(holdfast.Semaphore), "no Client made"},
		{(*holdfast.Multi)(nil), "no Client made"}, {new(holdfast.Multi), "no Client made"},
		{(*holdfast.Hold)(nil), "lock released"}, {new(holdfast.Hold), "lock released"},
		{(*holdfast.MultiHold)(nil), "lock released"}, {new(holdfast.MultiHold), "lock released"},
	} {
		v := reflect.ValueOf(x.receiver)
		for m, f := range v.Methods() {
			what := fmt.Sprintf("%v.%s, nil: %v", v.Type(), m.Name, v.IsNil())
			wantPlain(t, what, x.want, f.Call(validArgs(t, f.Type())))
		}
	}
	var h *holdfast.Hold
	for what, err := range map[string]error{"Unlock": h.Unlock(), "Err": h.Err(), "cause": context.Cause(h.Context()), "Multi": new(holdfast.MultiHold).Unlock()} {
		if !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("%s of no hold: %v", what, err)
		}
	}
}

// validArgs returns arguments that a method takes, without the variadic ones.
func validArgs(t *testing.T, f reflect.Type) []reflect.Value {
	var args []reflect.Value
	for i := range f.NumIn() {
		switch in := f.In(i); {
		case f.IsVariadic() && i == f.NumIn()-1:
		case in == ctxType:
			args = append(args, reflect.ValueOf(soon(t)))
		case in.Kind() == reflect.Func:
			args = append(args, reflect.MakeFunc(in, func([]reflect.Value) []reflect.Value {
				t.Error("the function was run")
				return []reflect.Value{reflect.Zero(errType)}
			}))
		case in.Kind() == reflect.String:
			args = append(args, reflect.ValueOf("a").Convert(in))
		case in.Kind() == reflect.Int:
			args = append(args, reflect.ValueOf(1))
		case in == reflect.TypeFor[[]string]():
			args = append(args, reflect.ValueOf([]string{"a"}))
		case in == reflect.TypeFor[time.Time]():
			args = append(args, reflect.ValueOf(time.Now()))
		default:
			t.Fatalf("%v: this test has no value for argument %d", f, i+1)
		}
	}
	return args
}

// wantPlain checks the results of a call. An error in them, that of a sequence,
// or that of each call on a handle in them must be plain and have want.
func wantPlain(t *testing.T, what, want string, results []reflect.Value) {
	t.Helper()
	for _, r := range results {
		var err error
		switch {
		case r.Type() == errType:
			err, _ = r.Interface().(error)
		case r.Type() == nameType:
			for _, e := range r.Interface().(iter.Seq2[string, error]) {
				err = e
			}
		case r.Kind() == reflect.Pointer && !r.IsNil() && r.NumMethod() > 0: // a handle
			for m, f := range r.Methods() {
				wantPlain(t, what+"."+m.Name, want, f.Call(validArgs(t, f.Type())))
			}
			continue
		default:
			continue
		}
		switch {
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want an error with %q", what, err, want)
		case err != holdfast.ErrReleased && (!strings.HasPrefix(err.Error(), "holdfast: ") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: message %q", what, err)
		}
	}
}
