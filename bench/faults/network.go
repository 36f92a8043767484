//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// Addresses of the proxy and the upstream in their network namespaces.
const (
	wireName   = "wire"
	proxyIP    = "10.213.0.1"
	upstreamIP = "10.213.0.2"
)

// network is a namespace for the proxy, one for its upstream, and a wire between them. A namespace exists as
// long as its file is open or a process is in it.
type network struct {
	wire
	upstream []string // a command line that starts a program in the upstream's namespace
}

// onNetwork makes a network for a stage. Its processes will start there.
func onNetwork(st *stage) error {
	n := &network{}
	var inside [2][]string
	for i, ip := range [][2]string{{proxyIP, upstreamIP}, {upstreamIP, proxyIP}} {
		tun, space, err := newEnd(wireName)
		if err != nil {
			return err
		}
		st.Later(func() { _ = space.Close() })
		st.Later(func() { _ = tun.Close() })
		n.ends[i] = tun
		inside[i] = []string{"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), space.Fd())}
		for _, args := range []string{"address add " + ip[0] + " peer " + ip[1] + " dev " + wireName, "link set " + wireName + " mtu 1400 up", "link set lo up"} {
			if err := execute(inside[i], "ip "+args); err != nil {
				return err
			}
		}
	}
	n.connect()
	st.Later(n.close)
	st.net, n.upstream, st.spec.By, st.upBy = n, inside[1], inside[0], inside[1]
	st.upAddr = upstreamIP + ":8080"
	st.spec.Upstream = "http://" + st.upAddr
	st.spec.Listen, st.spec.Admin = "unix:"+st.dir+"/clients", "unix:"+st.dir+"/admin"
	return nil
}

func execute(by []string, line string) error {
	words := append(append([]string{}, by...), strings.Fields(line)...)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

// drop makes the upstream's host drop all packets, and pass ends that.
func drop(st *stage) error {
	return inTurn(
		func(st *stage) error { return execute(st.net.upstream, "iptables --append INPUT --jump DROP") },
		func(st *stage) error { return execute(st.net.upstream, "iptables --append OUTPUT --jump DROP") })(st)
}

func pass(st *stage) error { return execute(st.net.upstream, "iptables --flush") }

// stormy is a fault of the wire.
func stormy(name, how string, w weather, what string) fault {
	set := func(w weather) func(*stage) error {
		return func(st *stage) error { st.net.weather.Store(&w); return nil }
	}
	return fault{name: "network: " + name, how: how, what: what, prepare: onNetwork, begin: set(w), end: set(weather{}),
		effect: func(st *stage) (int64, error) { return st.net.affected.Load(), nil }}
}

// weather is what happens to packets, independently and in both directions.
type weather struct {
	loss, twice, late float64 // shares of the packets, in [0, 1]
	delay             time.Duration
}

// overtakenBy is the delay of a packet that others overtake.
const overtakenBy = 20 * time.Millisecond

// wire joins two network namespaces. It carries packets between their TUN devices, and does what netem would
// do, because not every kernel has netem.
type wire struct {
	ends     [2]*os.File
	weather  atomic.Pointer[weather]
	affected atomic.Int64 // packets that the weather affected
	all      sync.WaitGroup
}

// connect carries packets until close.
func (w *wire) connect() {
	w.weather.Store(&weather{})
	for i := range w.ends {
		queue := make(chan packet, 10000)
		w.all.Go(func() { w.read(w.ends[i], w.ends[1-i], queue, rand.New(rand.NewPCG(1, uint64(i)))) })
		w.all.Go(func() {
			for p := range queue {
				time.Sleep(time.Until(p.due))
				_, _ = w.ends[1-i].Write(p.bytes) // an error is a lost packet
			}
		})
	}
}

// close closes the devices and waits.
func (w *wire) close() {
	for _, f := range w.ends {
		_ = f.Close()
	}
	w.all.Wait()
}

type packet struct {
	due   time.Time
	bytes []byte
}

// read reads packets from one end and queues them for the other.
func (w *wire) read(from, to *os.File, queue chan<- packet, random *rand.Rand) {
	defer close(queue)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		now := *w.weather.Load()
		p := packet{time.Now().Add(now.delay), append([]byte(nil), buf[:n]...)}
		lost, twice, late := random.Float64() < now.loss, random.Float64() < now.twice, random.Float64() < now.late
		if lost || twice || late || now.delay > 0 {
			w.affected.Add(1)
		}
		switch {
		case lost:
			continue
		case late:
			time.AfterFunc(now.delay+overtakenBy, func() { _, _ = to.Write(p.bytes) })
			continue
		case twice:
			queue <- p
		}
		queue <- p
	}
}

// newEnd makes a network namespace with a TUN device, which exists until it is closed.
func newEnd(name string) (tun, space *os.File, err error) {
	// The thread must not end, because children that it has started would end, too (rig.Start).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const own = "/proc/thread-self/ns/net"
	home, err := os.Open(own)
	if err != nil {
		return nil, nil, err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, nil, rig.Impossible{Why: "no network namespace: " + err.Error()}
	}
	if space, err = os.Open(own); err == nil {
		tun, err = newTUN(name)
	}
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("no way back to the own network namespace: %v", err))
	}
	return tun, space, err
}

func newTUN(name string) (*os.File, error) {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, rig.Impossible{Why: (&fs.PathError{Op: "open", Path: device, Err: err}).Error()}
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("TUNSETIFF: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), device), nil
}
