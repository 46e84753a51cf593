package servers

import (
	"context"
	"strings"
)

// psql runs statements as one transaction at an address of PostgreSQL, with the
// program that comes with the server, and returns the values that they returned: a
// line for each row. Without statements it only connects.
func psql(ctx context.Context, url, sql string) (string, error) {
	path, err := lookUp("", []string{"psql"})
	if err != nil {
		return "", err
	}
	return output(ctx, path, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password",
		"--set=ON_ERROR_STOP=1", "--dbname="+url, "--command="+strings.TrimSpace(sql))
}
