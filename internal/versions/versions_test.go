package versions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRecordIsWellFormed checks that the published record can be read.
func TestRecordIsWellFormed(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(File)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(data); err != nil {
		t.Error(err)
	}
}

// TestAdd checks that a later pass replaces the earlier one of its server and package,
// and no other.
func TestAdd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "versions.json")
	pass := func(server, version string) Pass {
		return Pass{Server: server, Version: version, Date: "2026-11-22", Package: "mysqllock", Tests: 7}
	}
	for _, p := range []Pass{pass("mysql-9", "9.7.4"), pass("mariadb-11", "11.8.6"), pass("mysql-9", "9.8.0")} {
		if err := Add(file, p); err != nil {
			t.Fatal(err)
		}
	}
	other := pass("mysql-9", "9.6.0")
	other.Package = "fence/sqlfence"
	if err := Add(file, other); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 || all[0].Server != "mariadb-11" || all[1].Version != "9.6.0" || all[2].Version != "9.8.0" || all[2].Title() != "MySQL" {
		t.Errorf("the record is %+v", all)
	}

	for name, change := range map[string]func(*Pass){
		"unknown": func(p *Pass) { p.Server = "ftp-1" },
		"version": func(p *Pass) { p.Version = "" },
		"package": func(p *Pass) { p.Package = "" },
		"tests":   func(p *Pass) { p.Tests = 0 },
		"date":    func(p *Pass) { p.Date = "yesterday" },
	} {
		bad := pass("mysql-9", "9.9.0")
		change(&bad)
		if err := Add(file, bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if after, _ := os.ReadFile(file); string(after) != string(data) {
		t.Errorf("what was refused is in the record: %s", after)
	}
}

func TestParseRefuses(t *testing.T) {
	const pass = `{"server":"etcd-3.5","version":"3.5.16","date":"2026-11-22","package":"etcdlock","tests":1}`
	if all, err := Parse([]byte("[" + pass + "]")); err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, bad := range []string{
		"", "{}", "[" + pass + "] []", "[" + pass + "," + pass + "]",
		strings.Replace("["+pass+"]", `"tests"`, `"passes"`, 1), strings.Replace("["+pass+"]", "2026-11-22", "2026-22-11", 1),
	} {
		if _, err := Parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), File+" is malformed") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}
