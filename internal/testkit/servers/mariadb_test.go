package servers

import "testing"

func TestMariaDB(t *testing.T) {
	s := MariaDB(t, MariaDBOptions{Settings: []string{"max-connections=17"}})
	if n := s.Value(t, "SELECT @@max_connections"); n != 17 {
		t.Errorf("max_connections is %d", n)
	}
	s.Exec(t, "CREATE TABLE kept (n INT PRIMARY KEY)")
	s.Exec(t, "INSERT INTO kept VALUES (42)")
	for _, again := range []func(testing.TB){s.Restart, s.Crash} {
		again(t)
		if n := s.Value(t, "SELECT n FROM kept"); n != 42 {
			t.Errorf("read %d after the server came back", n)
		}
	}
	if n := s.KillConnections(t, "true"); n != 0 {
		t.Errorf("%d connections of nobody were killed", n)
	}
}
