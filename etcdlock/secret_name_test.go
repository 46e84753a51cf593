package etcdlock_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestServerName checks that a certificate needs the name that the URL gives,
// and not the host's. The server only performs handshakes.
func TestServerName(t *testing.T) {
	t.Parallel()
	certs := servers.NewCerts(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(certs.Cert, certs.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if s := c.(*tls.Conn); s.HandshakeContext(t.Context()) == nil {
				asked <- s.ConnectionState().ServerName
			}
			c.Close()
		}
	}()
	url := "etcds://" + l.Addr().(*net.TCPAddr).String() + "?ca=" + certs.CA + "&server_name="
	if _, err := etcdlock.Open(ctx, url+"elsewhere&dial_timeout=20s"); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("a certificate for another name: %v", err)
	}
	if _, err := etcdlock.Open(ctx, url+"localhost&dial_timeout=3s"); err == nil || strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate for this name: %v", err)
	}
	for len(asked) > 0 {
		if name := <-asked; name != "localhost" {
			t.Errorf("the server was asked for %q", name)
		}
	}
}
