package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// connection is one of the proxy's own making.
type connection struct{ from, to string }

// listening is the state of a socket that listens, in /proc/net/tcp.
const listening = "0A"

// dialledBy are the connections of TCP that the process has dialled and not closed yet.
func dialledBy(p *proxy) (all []connection) {
	mine := socketsOf(p.PID())
	ports := []string{portOf(p.Addr), portOf(p.Admin)}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", p.PID(), table))
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			fields := strings.Fields(sc.Text())
			if len(fields) < 10 || fields[3] == listening || !mine[fields[9]] {
				continue
			}
			c := connection{addressOf(fields[1]), addressOf(fields[2])}
			if !slices.Contains(ports, portOf(c.from)) { // those are clients'
				all = append(all, c)
			}
		}
		_ = f.Close()
	}
	return all
}

// socketsOf are the inodes of a process's sockets.
func socketsOf(pid int) map[string]bool {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	open, _ := os.ReadDir(dir)
	all := map[string]bool{}
	for _, e := range open {
		to, _ := os.Readlink(dir + e.Name())
		if inode, is := strings.CutPrefix(to, "socket:["); is {
			all[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return all
}

// addressOf reads an address of /proc/net/tcp: words of 32 bits in the machine's own order, and a port.
func addressOf(text string) string {
	words, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return text
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String()
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
