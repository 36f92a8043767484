package overload

import (
	"net"
	"sync"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// doors are the connections of all listeners. Like a proxy before an application that is gone, they can end
// every connection once it is accepted.
type doors struct {
	mu   sync.Mutex // guards what follows
	how  string     // rst, fin or accept
	open map[net.Conn]struct{}
}

// set changes what happens to connections. Open ones end too.
func (d *doors) set(how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.how = how
	for c := range d.open {
		end(c, how)
	}
}

func end(c net.Conn, how string) {
	switch how {
	case "rst":
		rig.Reset(c)
	case "fin":
		_ = c.Close()
	}
}

// admit adds a connection, or ends it. It reports whether it was added.
func (d *doors) admit(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.how == "rst" || d.how == "fin" {
		end(c, d.how)
		return false
	}
	d.open[c] = struct{}{}
	return true
}

// door is a listener behind doors.
type door struct {
	net.Listener
	all *doors
}

// Accept returns the next connection that is admitted.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.all.admit(c) {
			return &visitor{c, d.all}, nil
		}
	}
}

// visitor is a connection that leaves doors when it is closed.
type visitor struct {
	net.Conn
	all *doors
}

func (v *visitor) Close() error {
	v.all.mu.Lock()
	delete(v.all.open, v.Conn)
	v.all.mu.Unlock()
	return v.Conn.Close()
}
