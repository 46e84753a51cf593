package servers

import "testing"

func TestEtcdComesAndGoes(t *testing.T) {
	for _, v := range []EtcdVersion{EtcdNewest, EtcdOld} {
		t.Run(string(v), func(t *testing.T) {
			s := Etcd(t, EtcdOptions{Version: v})
			if out, err := s.Ctl(t, "put", "k", "v").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			s.Members[0].Restart(t)
			out, err := s.Ctl(t, "get", "k", "--print-value-only").Output()
			if err != nil || string(out) != "v\n" {
				t.Errorf("after a crash: %q, %v", out, err)
			}
		})
	}
}

func TestEtcdCluster(t *testing.T) {
	s := Etcd(t, EtcdOptions{Members: 3})
	s.Members[0].Kill()
	// A request that met the dead leader's followers before they noticed ends
	// with etcdctl's time-out of 5 s; the next request must pass.
	var out []byte
	var err error
	for range 3 {
		if out, err = s.Ctl(t, "put", "k", "v").CombinedOutput(); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("without one of three: %v: %s", err, out)
	}
	s.Members[0].Restart(t)
}

func TestEtcdTLS(t *testing.T) {
	s := Etcd(t, EtcdOptions{TLS: true})
	cmd := s.Ctl(t, "put", "k", "v")
	cmd.Args = append(cmd.Args, "--cacert", s.Certs.CA, "--cert", s.Certs.ClientCert, "--key", s.Certs.ClientKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
