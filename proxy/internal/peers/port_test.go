package peers

import (
	"net"
	"testing"
)

func TestAReservedPortRefusesUntilItIsOpen(t *testing.T) {
	p := ReservePort(t)
	for range 2 {
		if c, err := net.Dial("tcp4", p.Addr); err == nil {
			c.Close()
			t.Fatal("connected to a port on which nobody listens")
		}
		l := p.Open()
		c, err := net.Dial("tcp4", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}
