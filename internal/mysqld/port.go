package mysqld

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// hold is a socket that is bound to a port and does not listen on it. While it is
// open the kernel gives the port to nobody who asks for a free one, and the server,
// which sets SO_REUSEADDR as it does, can still listen there: two sockets with
// that option conflict only when one of them listens.
type hold struct {
	fd   int
	addr netip.AddrPort
}

// holdPort holds addr; its port may be zero. With EADDRINUSE another socket
// listens there.
func holdPort(addr netip.AddrPort) (*hold, error) {
	family := unix.AF_INET
	var sa unix.Sockaddr
	if addr.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold %v: socket: %w", addr, err)
	}
	port, err := bindTo(fd, sa)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold %v: %w", addr, err), unix.Close(fd))
	}
	return &hold{fd: fd, addr: netip.AddrPortFrom(addr.Addr(), port)}, nil
}

func bindTo(fd int, sa unix.Sockaddr) (uint16, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("SO_REUSEADDR: %w", err)
	}
	if err := unix.Bind(fd, sa); err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("getsockname: %w", err)
	}
	switch sa := bound.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port), nil
	case *unix.SockaddrInet6:
		return uint16(sa.Port), nil
	}
	return 0, fmt.Errorf("getsockname: %w", unix.EAFNOSUPPORT)
}

// taken reports whether another socket listens on the held port.
func (h *hold) taken() bool {
	second, err := holdPort(h.addr)
	if err != nil {
		return errors.Is(err, unix.EADDRINUSE)
	}
	_ = second.release()
	return false
}

func (h *hold) release() error { return unix.Close(h.fd) }
