package rig

import (
	"net"
	"runtime"
	"testing"
)

func TestOwnAddressesAreFreeAndDiffer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	all := OwnAddresses(100)
	seen := map[string]bool{}
	for _, a := range all {
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() || ip.Equal(net.IPv4(127, 0, 0, 1)) || seen[a] {
			t.Errorf("%s", a)
		}
		seen[a] = true
	}
}
