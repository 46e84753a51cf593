package mysqllock

import (
	"context"
	"database/sql"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// item is one statement on its way.
type item struct {
	text string
	args []any
	rows bool // its answer has rows, perhaps none
	row  func(scan func(...any) error) error
	stmt *sqlline.Stmt // gets the id of the answer, if it is alone
}

func itemOf(s *sqlline.Stmt) *item {
	it := &item{text: s.Text.SQL, rows: !s.Text.Writes, row: s.Row, stmt: s}
	for _, arg := range s.Values() {
		if text, ok := arg.(string); ok {
			arg = []byte(text) // no character set touches bytes
		}
		it.args = append(it.args, arg)
	}
	return it
}

// run sends statements and reads their answers: in one go if they travel
// together, and else one after the other. Commits says that the transaction may
// end with them, so that an answer that is missing leaves it unknown whether
// that took place.
func (c *conn) run(ctx context.Context, commits bool, items ...*item) error {
	if err := driver.Before(ctx); err != nil {
		return err
	}
	var err error
	var refusal error
	switch {
	case len(items) == 1:
		err = c.one(ctx, items[0], &refusal)
	case c.way.together:
		err = c.several(ctx, items, &refusal)
	default:
		for i := 0; err == nil && refusal == nil && i < len(items); i++ {
			err = c.one(ctx, items[i], &refusal)
		}
	}
	if err != nil {
		return classify(ctx, err, commits)
	}
	return driver.Wrap(driver.Refused, refusal)
}

// one runs a statement by itself.
func (c *conn) one(ctx context.Context, it *item, refusal *error) error {
	if !it.rows {
		result, err := c.ExecContext(ctx, it.text, it.args...)
		if err == nil && it.stmt != nil {
			it.stmt.Last, err = result.LastInsertId()
		}
		return err
	}
	rows, err := c.QueryContext(ctx, it.text, it.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	read(rows, it, refusal)
	return rows.Err()
}

// several runs statements in one packet. Those without rows have no part in the
// answers that are seen.
func (c *conn) several(ctx context.Context, items []*item, refusal *error) error {
	var texts []string
	var args []any
	var answers []*item
	for _, it := range items {
		texts = append(texts, it.text)
		args = append(args, it.args...)
		if it.rows {
			answers = append(answers, it)
		}
	}
	text := strings.Join(texts, "; ")
	if len(answers) == 0 {
		_, err := c.ExecContext(ctx, text, args...)
		return err
	}
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for _, it := range answers {
		read(rows, it, refusal)
		if !rows.NextResultSet() {
			break
		}
	}
	return rows.Err()
}

// read hands the rows of one answer on, up to the first that is refused.
func read(rows *sql.Rows, it *item, refusal *error) {
	for rows.Next() {
		if it.row != nil && *refusal == nil {
			*refusal = it.row(rows.Scan)
		}
	}
}
