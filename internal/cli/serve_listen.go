//go:build unix

package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// silentFor bounds how long a connection may be silent, or data in it unconfirmed,
// before the system gives it up.
const silentFor = 30 * time.Second

// listeners are the sockets of a server.
type listeners struct {
	clients []net.Listener
	admin   net.Listener // nil without --admin-listen
	// held is the file that keeps other servers from the Unix socket, or nil.
	held *os.File
}

// close closes all sockets.
func (l *listeners) close() {
	for _, c := range l.clients {
		_ = c.Close()
	}
	if l.admin != nil {
		_ = l.admin.Close()
	}
	if l.held != nil {
		_ = l.held.Close()
	}
}

// bind opens the sockets: those of systemd, of --listen, --unix and --admin-listen.
// After an error none is open.
func (s *serveCommand) bind(ctx context.Context) (_ *listeners, err error) {
	l := &listeners{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for _, file := range activation.Files(true) {
		passed, err := net.FileListener(file)
		_ = file.Close() // the listener has a copy
		if err != nil {
			return nil, fail(exitUsage, "the socket %s of systemd: %w", shown(file.Name()), err)
		}
		l.clients = append(l.clients, passed)
		if err := s.checkAddress("the socket of systemd at", passed.Addr()); err != nil {
			return nil, err
		}
	}
	addresses := s.listen
	if len(addresses) == 0 && len(l.clients) == 0 && s.unixPath == "" {
		addresses = []string{defaultListen}
	}
	for _, address := range addresses {
		c, err := s.bindTCP(ctx, "--listen", address)
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, c)
	}
	if s.unixPath != "" {
		c, held, err := bindUnix(ctx, s.unixPath)
		if err != nil {
			return nil, err
		}
		l.clients, l.held = append(l.clients, c), held
	}
	if s.admin != "" {
		if l.admin, err = s.bindTCP(ctx, "--admin-listen", s.admin); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// bindTCP listens on an address, once it is known who can reach it.
func (s *serveCommand) bindTCP(ctx context.Context, flag, address string) (net.Listener, error) {
	resolved, err := resolve(ctx, flag, address)
	if err != nil {
		return nil, err
	}
	if flag == "--listen" {
		if err := s.checkAddress(flag, resolved); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silentFor / 2, Interval: silentFor / 6, Count: 3},
		Control:         limitSilence,
	}
	l, err := config.Listen(ctx, "tcp", resolved.String())
	if err != nil {
		return nil, fail(exitUnavailable, "%s: %w", flag, err)
	}
	return l, nil
}

// resolve returns the address that HOST:PORT means here; without a host, it has no IP
// address.
func resolve(ctx context.Context, flag, address string) (*net.TCPAddr, error) {
	host, port, err := net.SplitHostPort(address)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil {
		return nil, usage("%s %s is not HOST:PORT", flag, shown(address))
	}
	if host == "" {
		return &net.TCPAddr{Port: int(n)}, nil
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, fail(exitUnavailable, "%s %s: %w", flag, shown(address), err)
	}
	first := found[0]
	for _, a := range found { // localhost usually means 127.0.0.1
		if a.IP.To4() != nil {
			first = a
			break
		}
	}
	return &net.TCPAddr{IP: first.IP, Zone: first.Zone, Port: int(n)}, nil
}

// bindUnix listens on a socket that this process's user and root can open. It
// replaces the socket of a process that has ended, and no other. The returned file
// holds a lock on PATH.lock until it is closed.
func bindUnix(ctx context.Context, path string) (net.Listener, *os.File, error) {
	held, err := holdSocket(path)
	if err != nil {
		return nil, nil, err
	}
	l, err := bindHeldUnix(ctx, path)
	if err != nil {
		_ = held.Close()
		return nil, nil, err
	}
	return l, held, nil
}

// holdSocket makes this process the only server that may replace a socket.
func holdSocket(path string) (*os.File, error) {
	fd, err := unix.Open(path+".lock", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fail(exitUsage, "--unix: %s.lock: %w", shown(path), err)
	}
	held := os.NewFile(uintptr(fd), path+".lock")
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = held.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fail(exitUnavailable, "--unix %s: another server has this socket", shown(path))
		}
		return nil, fail(exitInternal, "--unix: %s.lock: %w", shown(path), err)
	}
	return held, nil
}

func bindHeldUnix(ctx context.Context, path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fail(exitUsage, "--unix: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, usage("--unix %s is there and is not a socket", shown(path))
	default:
		if err := removeSilent(ctx, path); err != nil {
			return nil, err
		}
	}
	// The rights of a socket are those that it is made with: there must be no moment
	// at which others can open it.
	mask := syscall.Umask(0o177)
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	syscall.Umask(mask)
	if err != nil {
		return nil, fail(exitUnavailable, "--unix: %w", err)
	}
	return l, nil
}

// removeSilent removes a socket that nobody answers.
func removeSilent(ctx context.Context, path string) error {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fail(exitUnavailable, "--unix %s: another process answers this socket", shown(path))
	case !errors.Is(err, unix.ECONNREFUSED):
		return fail(exitUnavailable, "--unix: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fail(exitUsage, "--unix: %w", err)
	}
	return nil
}

// hostsOf returns the names by which requests may call a server, or nothing if
// localhost and addresses are enough.
func hostsOf(l *listeners, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	hosts := append([]string{"localhost"}, names...)
	for _, c := range l.clients {
		tcp, ok := c.Addr().(*net.TCPAddr)
		switch {
		case !ok:
		case !tcp.IP.IsUnspecified():
			hosts = append(hosts, tcp.IP.String())
		default:
			hosts = append(hosts, ownAddresses()...)
		}
	}
	return hosts
}

// ownAddresses returns the addresses of this machine.
func ownAddresses() (all []string) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			all = append(all, n.IP.String())
		}
	}
	return all
}
