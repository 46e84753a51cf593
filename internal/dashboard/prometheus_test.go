package dashboard

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

var language = parser.NewParser(parser.Options{})

// database is Prometheus' storage with the scrapes of the scene, and its engine.
type database struct {
	db          *tsdb.DB
	engine      *promql.Engine
	first, last time.Time
}

var scenes struct {
	once     sync.Once
	database *database
}

// scene returns the database of the scene, which is played once.
func scene(t *testing.T) *database {
	t.Helper()
	scenes.once.Do(func() { scenes.database = load(t, play(t)) })
	if scenes.database == nil {
		t.FailNow()
	}
	return scenes.database
}

func TestMain(m *testing.M) {
	status := m.Run()
	if s := scenes.database; s != nil {
		_ = s.db.Close()
		_ = os.RemoveAll(s.db.Dir())
	}
	os.Exit(status)
}

// load parses scrapes as Prometheus does, and stores their samples.
func load(t *testing.T, scrapes []scrape) *database {
	t.Helper()
	folder, err := os.MkdirTemp("", "holdfast-dashboard-")
	if err != nil {
		t.Fatal(err)
	}
	db, err := tsdb.Open(folder, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scrapes {
		if err := appendScrape(db, s); err != nil {
			t.Fatal(err)
		}
	}
	return &database{
		db: db, first: scrapes[0].at, last: scrapes[len(scrapes)-1].at,
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableNegativeOffset: true, EnableAtModifier: true, Parser: language,
		}),
	}
}

func appendScrape(db *tsdb.DB, s scrape) error {
	p, err := textparse.New(s.text, s.contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	app := db.Appender(context.Background())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return app.Commit()
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		_, _, value := p.Series()
		l = labels.NewBuilder(l).Set("job", s.job).Set("instance", s.job+":80").Labels()
		if _, err := app.Append(0, l, s.at.UnixMilli(), value); err != nil {
			return err
		}
	}
}

// evaluate returns the series of an expression over the scene. Samples that are no
// numbers, and series without others, are left out.
func (d *database) evaluate(t *testing.T, expr string) promql.Matrix {
	t.Helper()
	query, err := d.engine.NewRangeQuery(t.Context(), d.db, nil, expr, d.first, d.last, interval)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var numbers promql.Matrix
	for _, series := range matrix {
		kept := promql.Series{Metric: series.Metric}
		for _, point := range series.Floats {
			if !math.IsNaN(point.F) {
				kept.Floats = append(kept.Floats, point)
			}
		}
		if len(kept.Floats) > 0 {
			numbers = append(numbers, kept)
		}
	}
	return numbers
}

// of returns an expression for the series of one job alone.
func of(t *testing.T, expr, job string) string {
	t.Helper()
	tree := parse(t, expr)
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			s.LabelMatchers = append(s.LabelMatchers, labels.MustNewMatcher(labels.MatchEqual, "job", job))
		}
		return nil
	})
	return tree.String()
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	tree, err := language.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return tree
}
