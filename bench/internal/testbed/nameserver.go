package testbed

import (
	"net"

	"github.com/retryproxy/retryproxy/bench/internal/nameserver"
)

// Answer is what a name server says of a name. The zero Answer is silence.
type Answer struct {
	IP    string
	Fails bool // SERVFAIL
}

// NameServer answers questions at ip, port 53. It returns the command line by way of which a program asks this server and nobody else;
// dir keeps a file for it. Its error says why the machine cannot do that.
func (b *Bed) NameServer(ip, dir string, answer func(name string) Answer) (by []string, err error) {
	if by, err = nameserver.Asking(ip, dir); err != nil {
		return nil, err
	}
	c, err := net.ListenPacket("udp", ip+":53")
	if err != nil {
		return nil, err
	}
	b.Later(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, name, err := nameserver.Answer(buf[:n], func(string) (ip [4]byte) { return ip }, false)
			if err != nil {
				continue
			}
			if a := answer(name); a != (Answer{}) {
				reply, _, _ := nameserver.Answer(buf[:n], func(string) [4]byte { return [4]byte(net.ParseIP(a.IP).To4()) }, a.Fails)
				_, _ = c.WriteTo(reply, from)
			}
		}
	}()
	return by, nil
}
