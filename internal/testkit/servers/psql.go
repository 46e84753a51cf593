package servers

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// psqlPath is the path of psql. Debian's psql in the PATH is a script in Perl that
// looks for the newest one and takes six times as long as that one itself, so the
// folders of packages come first.
var psqlPath = sync.OnceValues(func() (string, error) {
	var programs []string
	for _, bin := range postgresFolders() {
		programs = append(programs, bin+"/psql")
	}
	path, err := lookUp("", append(programs, "psql"))
	if err != nil {
		return "", errors.New("psql is not installed")
	}
	return path, nil
})

// psql runs statements as one transaction at an address of PostgreSQL, with the
// program that comes with the server, and returns the values that they returned: a
// line for each row. Without statements it only connects.
func psql(ctx context.Context, url, sql string) (string, error) {
	path, err := psqlPath()
	if err != nil {
		return "", err
	}
	return output(ctx, path, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password",
		"--set=ON_ERROR_STOP=1", "--dbname="+url, "--command="+strings.TrimSpace(sql))
}
