//go:build unix

package cli

import "testing"

func TestSchema(t *testing.T) {
	holdfastHere("schema", "mysql").want(t, exitOK, "CREATE TABLE holdfast_line", "")
	holdfastHere("schema", "mariadb").want(t, exitOK, "GRANT SELECT", "")
	holdfastHere("schema", "postgres").want(t, exitOK, "CREATE TABLE holdfast_line", "")
	holdfastHere("schema", "sqlite").want(t, exitOK, "STRICT", "")
	r := holdfastHere("schema", "sqlite", "--json").want(t, exitOK, "", "")
	if o := objects(t, r.out); len(o) != 1 || o[0]["sql"] == "" {
		t.Errorf("%v", o)
	}

	// The options of a URL count, where it is of the database that is named.
	holdfastHere("schema", "--store", "mysql://u:pw@h/db?table_prefix=x_").want(t, exitOK, "CREATE TABLE x_line", "")
	holdfastHere("schema", "mysql", "--store", "mariadb://u:pw@h/db?table_prefix=x_").want(t, exitOK, "CREATE TABLE x_line", "")
	holdfastHere("schema", "sqlite", "--store", "mysql://u:pw@h/db?table_prefix=x_").want(t, exitOK, "CREATE TABLE holdfast_line", "")

	holdfastHere("schema").want(t, exitUsage, "", "mysql, postgres or sqlite")
	holdfastHere("schema", "redis").want(t, exitUsage, "", "has no tables")
	holdfastHere("schema", "mysql", "sqlite").want(t, exitUsage, "", "takes one database")
	holdfastHere("schema", "mysql://u:pw@h/db").want(t, exitUsage, "", "by --store")
	holdfastHere("schema", "--store", "mysql://u:pw@h/db?retry=1").want(t, exitUsage, "", "unknown option")
}
