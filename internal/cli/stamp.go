package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// stampedVersion and stampedRevision are set by the linker in a release; the
// module release does it. Without them the build information of the Go command
// counts.
var stampedVersion, stampedRevision string

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // with "+changes" when the tree had any
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns the line that the command version prints.
func (v versionJSON) String() string {
	revision := ""
	if v.Revision != "" {
		revision = " (" + v.Revision + ")"
	}
	return fmt.Sprintf("holdfast %s%s, %s, %s", v.Version, revision, v.Go, v.Platform)
}

// ownVersion returns the version of this binary.
func ownVersion() versionJSON {
	info, _ := debug.ReadBuildInfo()
	v := versionOf(info)
	v.Version = cmp.Or(stampedVersion, v.Version)
	v.Revision = cmp.Or(stampedRevision, v.Revision)
	return v
}

// versionOf reads the build information in the binary; info may be nil.
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
