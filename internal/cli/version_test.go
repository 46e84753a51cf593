//go:build unix

package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	holdfastHere("version").want(t, exitOK, "holdfast ", "")
	holdfastHere("--version").want(t, exitOK, "holdfast ", "")
	holdfastHere("--json", "--version").want(t, exitOK, `{"version":`, "")
	r := holdfastHere("version", "--json").want(t, exitOK, "", "")
	if o := objects(t, r.out); o[0]["go"] != runtime.Version() || o[0]["version"] == "" {
		t.Errorf("%v", o)
	}
	holdfastHere("version", "1").want(t, exitUsage, "", "no arguments")
}

func TestVersionOf(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	if v := versionOf(info); v.Version != "v1.2.3" || v.Revision != "0123456789ab+changes" {
		t.Errorf("%+v", v)
	}
	if v := versionOf(nil); v.Version != "(devel)" || v.Revision != "" {
		t.Errorf("%+v", v)
	}
}

func TestOwnVersionStamped(t *testing.T) {
	defer func() { stampedVersion, stampedRevision = "", "" }()
	stampedVersion, stampedRevision = "v1.2.3", "0123456789ab"
	want := "holdfast v1.2.3 (0123456789ab), " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	if got := ownVersion().String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
