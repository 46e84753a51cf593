package main

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/internal/cli/manpage"
)

// textsIn returns the path of a text in the stage.
func (r *release) textsIn(name string) string { return filepath.Join(r.stage, "texts", name) }

// makeTexts makes what accompanies a binary: manual pages, completions, licences,
// the README and the change log.
func (r *release) makeTexts() error {
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		if err := r.writeText(name, text); err != nil {
			return err
		}
	}
	for _, page := range manpage.Pages(cli.New(), r.plain(), r.date) {
		if err := r.writeText("man/"+page.Name, page.Text); err != nil {
			return err
		}
	}
	if err := r.makeCompletions(); err != nil {
		return err
	}
	return r.makeLicences()
}

func (r *release) writeText(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(r.textsIn(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.textsIn(name), text, 0o644)
}

// makeCompletions writes what the verb completion prints, under the names that
// the shells look for.
func (r *release) makeCompletions() error {
	root := cli.New()
	root.InitDefaultCompletionCmd()
	var bash, zsh, fish bytes.Buffer
	if err := root.GenBashCompletionV2(&bash, true); err != nil {
		return err
	}
	if err := root.GenZshCompletion(&zsh); err != nil {
		return err
	}
	if err := root.GenFishCompletion(&fish, true); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"completions/holdfast": bash.Bytes(), "completions/_holdfast": zsh.Bytes(), "completions/holdfast.fish": fish.Bytes(),
	} {
		if err := r.writeText(name, text); err != nil {
			return err
		}
	}
	return nil
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice)([-._].*)?$`)

// makeLicences writes the licences of all modules in the binaries, and Go's.
func (r *release) makeLicences() error {
	modules := map[string]string{} // path to version
	for _, t := range r.targets {
		info, err := buildinfo.ReadFile(r.binaryOf(t))
		if err != nil {
			return err
		}
		for _, m := range info.Deps {
			if !ours(m.Path) { // they have the licence of the whole
				modules[m.Path] = m.Version
			}
		}
	}
	paths := make([]string, 0, len(modules))
	for path := range modules {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	said, err := r.output("go", append([]string{"-C", filepath.Join("cmd", "holdfast"), "list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}, paths...)...)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	goroot, err := r.output("go", "env", "GOROOT")
	if err != nil {
		return err
	}
	if err := addLicences(&b, "Go "+runtime.Version(), strings.TrimSpace(goroot)); err != nil {
		return err
	}
	for line := range strings.Lines(said) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if err := addLicences(&b, name, folder); err != nil {
			return err
		}
	}
	return r.writeText("THIRD_PARTY_LICENSES", b.Bytes())
}

// addLicences appends the licences at the top of a module's folder.
func addLicences(b *bytes.Buffer, name, folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if f.IsDir() || !licenceFile.MatchString(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "==== %s: %s\n\n%s\n\n", name, f.Name(), bytes.TrimSpace(text))
		found = true
	}
	if !found {
		return fmt.Errorf("module %s has no licence in %s", name, folder)
	}
	return nil
}

// compressed returns text as gzip compresses it best, without a name or a time.
func compressed(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
