package wire

import "errors"

// ServerError is an error that a server answered, in its own words.
type ServerError string

// Error returns the server's words.
func (e ServerError) Error() string { return string(e) }

// Reply is a server's answer: a number, a text, a list, or nothing.
type Reply struct {
	kind kind
	n    int64
	text string
	list []Reply

	// Err is the error of this answer, in a list and from a pipeline.
	Err error
}

type kind uint8

const (
	nothing kind = iota
	number
	text
	list
)

// Number returns a Reply that is a number. The zero Reply is the absence of an
// answer.
func Number(n int64) Reply { return Reply{kind: number, n: n} }

// Text returns a Reply that is a text.
func Text(s string) Reply { return Reply{kind: text, text: s} }

// List returns a Reply of several. Pairs of names and values are a list, too.
func List(l []Reply) Reply { return Reply{kind: list, list: l} }

// Failed returns a Reply that is an error.
func Failed(err error) Reply { return Reply{Err: err} }

var errKind = errors.New("reply of another type")

// Int returns the answer as a number.
func (r *Reply) Int() (int64, error) {
	if r.kind != number || r.Err != nil {
		return 0, r.unlike()
	}
	return r.n, nil
}

// Text returns the answer as a text.
func (r *Reply) Text() (string, error) {
	if r.kind != text || r.Err != nil {
		return "", r.unlike()
	}
	return r.text, nil
}

// List returns the answer as a list.
func (r *Reply) List() ([]Reply, error) {
	if r.kind != list || r.Err != nil {
		return nil, r.unlike()
	}
	return r.list, nil
}

// Texts returns the answer as a list of texts.
func (r *Reply) Texts() ([]string, error) {
	l, err := r.List()
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(l))
	for i := range l {
		if texts[i], err = l[i].Text(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Pairs returns the answer, a list of names and values, as a map.
func (r *Reply) Pairs() (map[string]string, error) {
	l, err := r.Texts()
	if err != nil {
		return nil, err
	}
	if len(l)%2 != 0 {
		return nil, errKind
	}
	m := make(map[string]string, len(l)/2)
	for i := 0; i < len(l); i += 2 {
		m[l[i]] = l[i+1]
	}
	return m, nil
}

func (r *Reply) unlike() error {
	if r.Err != nil {
		return r.Err
	}
	return errKind
}
