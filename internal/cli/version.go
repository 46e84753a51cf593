//go:build unix

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the version of holdfast",
		Long: `Version prints the version of holdfast, the revision it was built from where that
is known, and the version of Go and the system it was built for and with.`,
		Example: `  holdfast version
  holdfast version --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("version takes no arguments")
			}
			info, _ := debug.ReadBuildInfo()
			v := versionOf(info)
			if a.json {
				return a.outJSON(v)
			}
			revision := ""
			if v.Revision != "" {
				revision = " (" + v.Revision + ")"
			}
			_, err := fmt.Fprintf(a.stdout(), "holdfast %s%s, %s, %s\n", v.Version, revision, v.Go, v.Platform)
			return err
		},
	}
}

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // with "+changes" when the tree had any
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// versionOf reads what the go command wrote into the binary; info may be nil.
func versionOf(info *debug.BuildInfo) versionJSON {
	v := versionJSON{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed && v.Revision != "" {
		v.Revision += "+changes"
	}
	return v
}
