//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// weather is what a wire does to packets, each by itself and in each direction.
type weather struct {
	loss, twice, late float64 // shares of the packets, in [0, 1]
	delay             time.Duration
}

// overtakenBy is how late a packet is that others overtake.
const overtakenBy = 20 * time.Millisecond

// wire joins two network namespaces: it carries packets between a TUN device in
// each. What tc's netem does in the kernel is done here, as not every kernel has it.
type wire struct {
	ends    [2]*os.File
	weather atomic.Pointer[weather]
	met     atomic.Int64 // packets that the weather changed
	all     sync.WaitGroup
}

// joinBy makes a device in the namespaces of two processes and carries packets until close.
func joinBy(name string, pids [2]int) (*wire, error) {
	w := &wire{}
	w.weather.Store(&weather{})
	for i, pid := range pids {
		f, err := openTUN(name, pid)
		if err != nil {
			if i > 0 {
				_ = w.ends[0].Close()
			}
			return nil, err
		}
		w.ends[i] = f
	}
	for i := range w.ends {
		queue := make(chan packet, 10000)
		w.all.Go(func() { w.read(w.ends[i], w.ends[1-i], queue, rand.New(rand.NewPCG(1, uint64(i)))) })
		w.all.Go(func() {
			for p := range queue {
				time.Sleep(time.Until(p.due))
				_, _ = w.ends[1-i].Write(p.bytes) // what does not get through is lost, as on any wire
			}
		})
	}
	return w, nil
}

// close ends it, and with it the devices.
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

// read takes packets from one end and has them written to the other one.
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
			w.met.Add(1)
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

// openTUN makes a device in the network namespace of a process. It is gone once closed.
func openTUN(name string, pid int) (*os.File, error) {
	// The thread must live on: children that it started before end with it (process.Start).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, impossible{"setns: " + err.Error()}
	}
	f, err := newTUN(name)
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("no way back to the own network namespace: %v", err))
	}
	return f, err
}

func newTUN(name string) (*os.File, error) {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, impossible{(&fs.PathError{Op: "open", Path: device, Err: err}).Error()}
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
