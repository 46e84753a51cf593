package trial

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestReleasesSameBytes compares all files of the two releases, and lets sha256sum
// check the first.
func TestReleasesSameBytes(t *testing.T) {
	files, err := os.ReadDir(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		a, errA := os.ReadFile(filepath.Join(first, f.Name()))
		b, errB := os.ReadFile(filepath.Join(second, f.Name()))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v %v", f.Name(), errA, errB)
		}
	}
	again, err := os.ReadDir(second)
	if err != nil || len(again) != len(files) {
		t.Errorf("%d files and %d, %v", len(files), len(again), err)
	}
	cmd := exec.Command("sha256sum", "--strict", "--check", "SHA256SUMS")
	cmd.Dir = first
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), ": OK\n") != len(files)-1 {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d files are the same, byte for byte", len(files))
}

// TestBinariesStaticAndStamped opens the binary of every archive: it is for its
// system, needs no library of it, and has the version and no path of the build.
func TestBinariesStaticAndStamped(t *testing.T) {
	for target := range strings.SplitSeq(*only, ",") {
		t.Run(target, func(t *testing.T) {
			data := binaryOf(t, target)
			info, err := buildinfo.Read(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			set := map[string]string{}
			for _, s := range info.Settings {
				set[s.Key] = s.Value
			}
			if set["GOOS"]+"/"+set["GOARCH"] != target || set["CGO_ENABLED"] != "0" || set["-trimpath"] != "true" || info.GoVersion != runtime.Version() {
				t.Errorf("built with %v by %s", set, info.GoVersion)
			}
			for _, hidden := range []string{filepath.Dir(first), os.Getenv("HOME") + "/go/pkg"} {
				if bytes.Contains(data, []byte(hidden)) {
					t.Errorf("the path %s is in it", hidden)
				}
			}
			if !bytes.Contains(data, []byte(version)) {
				t.Error("the version is not in it")
			}
			checkFormat(t, target, data)
		})
	}
}

// binaryOf returns the binary in the archive of a target.
func binaryOf(t *testing.T, target string) []byte {
	t.Helper()
	name := "*_" + strings.ReplaceAll(target, "/", "_")
	if !strings.HasPrefix(target, "windows/") {
		f, err := os.Open(one(t, name+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		folder := t.TempDir()
		unpack(t, f, folder)
		files, _ := filepath.Glob(folder + "/*/holdfast")
		data, err := os.ReadFile(strings.Join(files, " "))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	z, err := zip.OpenReader(one(t, name+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/holdfast.exe") {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
	t.Fatal("the archive has no holdfast.exe")
	return nil
}

// checkFormat opens a binary as its system would.
func checkFormat(t *testing.T, target string, data []byte) {
	t.Helper()
	r := bytes.NewReader(data)
	var machine fmt.Stringer
	switch system, _, _ := strings.Cut(target, "/"); system {
	case "linux", "freebsd":
		f, err := elf.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		machine = f.Machine
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("it has a %v: it is not static", p.Type)
			}
		}
	case "darwin":
		f, err := macho.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		machine = f.Cpu
	default:
		f, err := pe.NewFile(r)
		if err != nil || f.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
			t.Fatalf("%v %v", f, err)
		}
		return
	}
	want := map[string]string{
		"linux/amd64": "EM_X86_64", "linux/arm64": "EM_AARCH64", "darwin/amd64": "CpuAmd64", "darwin/arm64": "CpuArm64",
		"freebsd/amd64": "EM_X86_64", "freebsd/arm64": "EM_AARCH64",
	}
	if machine.String() != want[target] {
		t.Errorf("it is for %v, want %s", machine, want[target])
	}
}

// TestBOMsListModules holds each bill of materials against the binary that it is
// about.
func TestBOMsListModules(t *testing.T) {
	for target := range strings.SplitSeq(*only, ",") {
		f, err := os.Open(one(t, "*_"+strings.ReplaceAll(target, "/", "_")+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var bom cdx.BOM
		if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		data := binaryOf(t, target)
		if got, want := (*bom.Metadata.Component.Hashes)[0].Value, fmt.Sprintf("%x", sha256.Sum256(data)); got != want {
			t.Errorf("%s: the sum is %s, want %s", target, got, want)
		}
		info, err := buildinfo.Read(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, c := range *bom.Components {
			listed[c.PackageURL] = true
		}
		for _, m := range info.Deps {
			version := m.Version
			if strings.HasPrefix(m.Path+"/", "github.com/holdfast-go/holdfast/") {
				version = bom.Metadata.Component.Version // ours are released together
			}
			if !listed["pkg:golang/"+m.Path+"@"+version] {
				t.Errorf("%s: %s is missing", target, m.Path)
			}
		}
		if len(listed) != len(info.Deps)+1 || len(listed) < 3 {
			t.Errorf("%s: %d components, of %d modules and the standard library", target, len(listed), len(info.Deps))
		}
		t.Logf("%s: %d components", target, len(listed))
	}
}
