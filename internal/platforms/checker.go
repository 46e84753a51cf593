package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"runtime"
	"sync"
)

// sources are the parsed files of all platforms, most of which share most files.
type sources struct {
	fset *token.FileSet

	mu    sync.Mutex
	files map[string]*source
}

type source struct {
	once sync.Once
	file *ast.File
	err  error
}

func newSources() *sources {
	return &sources{fset: token.NewFileSet(), files: map[string]*source{}}
}

// parse returns a file, which it parses once.
func (s *sources) parse(name string) (*ast.File, error) {
	s.mu.Lock()
	f := s.files[name]
	if f == nil {
		f = &source{}
		s.files[name] = f
	}
	s.mu.Unlock()
	f.once.Do(func() { f.file, f.err = parser.ParseFile(s.fset, name, nil, parser.SkipObjectResolution) })
	return f.file, f.err
}

// checker reads the packages of one platform.
type checker struct {
	files *sources
	sizes types.Sizes
	list  []*goPackage
	done  map[string]*result // by import paths
}

// result has the types of a package, and what is wrong with it, once ready is closed.
type result struct {
	ready chan struct{}
	types *types.Package
	errs  []error
}

func newChecker(files *sources, processor string, list []*goPackage) *checker {
	c := &checker{files: files, sizes: types.SizesFor("gc", processor), list: list, done: map[string]*result{}}
	for _, p := range list {
		c.done[p.ImportPath] = &result{ready: make(chan struct{})}
	}
	return c
}

// all reads the packages, as many at once as there are processors. They come in the
// order of their imports: a package waits for none that has not been begun.
func (c *checker) all() error {
	next := make(chan *goPackage)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for p := range next {
				c.read(p, c.done[p.ImportPath])
			}
		})
	}
	for _, p := range c.list {
		next <- p
	}
	close(next)
	group.Wait()
	var errs []error
	for _, p := range c.list {
		errs = append(errs, c.done[p.ImportPath].errs...)
	}
	return errors.Join(errs...)
}

// read finds the types of one package. Bodies of functions are left out in the standard
// library, which is released for all its platforms together.
func (c *checker) read(p *goPackage, r *result) {
	defer close(r.ready)
	if p.ImportPath == "unsafe" {
		r.types = types.Unsafe
		return
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := c.files.parse(filepath.Join(p.Dir, name))
		if err != nil {
			r.errs = append(r.errs, err)
		}
		if f != nil {
			files = append(files, f)
		}
	}
	conf := types.Config{
		Importer:         importer{c, p},
		Sizes:            c.sizes,
		IgnoreFuncBodies: p.Standard,
		Error:            func(err error) { r.errs = append(r.errs, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		conf.GoVersion = "go" + p.Module.GoVersion
	}
	r.types, _ = conf.Check(p.ImportPath, c.files.fset, files, nil)
}

// importer resolves the imports of one package.
type importer struct {
	c *checker
	p *goPackage
}

func (i importer) Import(path string) (*types.Package, error) {
	if mapped, ok := i.p.ImportMap[path]; ok {
		path = mapped
	}
	r := i.c.done[path]
	if r == nil {
		return nil, fmt.Errorf("%s is not among the imports that go list names", path)
	}
	<-r.ready
	if r.types == nil {
		return nil, fmt.Errorf("%s has no types", path)
	}
	return r.types, nil
}
