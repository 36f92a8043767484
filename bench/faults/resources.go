//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// Failures of a name server.
const (
	silent   = "silent"
	servfail = "servfail"
)

// dnsGone is a failing name server, while the upstream closes every connection.
func dnsGone(name, how, mode string) fault {
	var now atomic.Value
	var unanswered atomic.Int64
	return fault{name: name, how: how + "; its answers hold for 1 s, and the upstream ends every connection", mode: closing,
		begin: func(*stage) error { now.Store(mode); return nil },
		end:   func(*stage) error { now.Store(""); return nil },
		what:  "questions without an address", effect: func(*stage) (int64, error) { return unanswered.Load(), nil },
		prepare: func(st *stage) error {
			now.Store("")
			ip, port, err := net.SplitHostPort(st.upAddr)
			if err != nil {
				return err
			}
			st.spec.Upstream = "http://app.faults.test:" + port
			st.spec.By, err = st.NameServer(ip, func(string) rig.Answer {
				switch now.Load() {
				case "":
					return rig.Answer{IP: ip}
				case servfail:
					unanswered.Add(1)
					return rig.Answer{Fails: true}
				}
				unanswered.Add(1)
				return rig.Answer{}
			})
			return err
		}}
}

// certificateExpired is an https upstream with an expired certificate, until that is renewed. Requests fail at
// once (decision 37).
func certificateExpired() fault {
	show := func(file string) func(*stage) error {
		return func(st *stage) error { return order("cert " + filepath.Join(st.dir, file))(st) }
	}
	return fault{name: "certificate expired", how: "an https upstream whose certificate is a minute too old, connections reset; then a renewed one", what: attemptsFailed, effect: failedAttempts,
		fail: anything, instant: true, reasons: []string{"untrusted_certificate", "not_idempotent"}, // the latter for requests that the reset met
		begin: inTurn(show("old"), order("drop")), end: show("good"),
		prepare: func(st *stage) error {
			var authorities []byte
			for name, until := range map[string]time.Time{"good": time.Now().Add(time.Hour), "old": time.Now().Add(-time.Minute)} {
				b, err := st.certificate(name, until)
				if err != nil {
					return err
				}
				authorities = append(authorities, b...)
			}
			file := filepath.Join(st.dir, "authorities")
			st.cert, st.spec.Upstream = filepath.Join(st.dir, "good"), "https://"+st.upAddr
			st.spec.Env = append(st.spec.Env, "RETRYPROXY_UPSTREAM_CA="+file)
			return os.WriteFile(file, authorities, 0o600)
		}}
}

// certificate writes a certificate for the upstream's address and its key to a file.
func (st *stage) certificate(name string, until time.Time) ([]byte, error) {
	host, _, _ := net.SplitHostPort(st.upAddr)
	file := filepath.Join(st.dir, name)
	if err := rig.WriteCertificate(file, net.ParseIP(host), until); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// descriptorsLowered lowers the descriptor limit of the running proxy.
func descriptorsLowered() fault {
	var old unix.Rlimit
	return fault{name: "descriptor limit lowered", how: "RLIMIT_NOFILE of the running process set to what it has open and 4, 30 more clients at once",
		mode: late, crowd: slices.Repeat([]requestKind{once}, 30), what: acceptPauses, effect: pausedAccepting, fail: anything,
		begin: func(st *stage) error {
			if err := unix.Prlimit(st.proxy.PID(), unix.RLIMIT_NOFILE, nil, &old); err != nil {
				return err
			}
			return unix.Prlimit(st.proxy.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(st.proxy.Descriptors() + 4), Max: old.Max}, nil)
		},
		end: func(st *stage) error {
			err := unix.Prlimit(st.proxy.PID(), unix.RLIMIT_NOFILE, &old, nil)
			if errors.Is(err, unix.ESRCH) { // the proxy has ended
				return nil
			}
			return err
		}}
}

// memoryOfCgroup is a memory limit that the process comes near to. It knows the limit and collects its garbage
// in time. If it were killed, requests would fail.
func memoryOfCgroup() fault {
	const limit = 20 << 20
	var g *rig.Group
	return fault{name: "memory limit", how: "a cgroup of 20 MiB, bodies for retries at most 12 MiB (RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES); 64 more clients at once, each with PUTs of 512 KiB",
		mode: late, crowd: slices.Repeat([]requestKind{uploading}, 32), settings: []string{"RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=12MiB"},
		prepare: func(st *stage) (err error) {
			if g, err = st.NewGroup(fmt.Sprintf("faults-%d", os.Getpid()), limit); err == nil {
				st.spec.By = g.By()
			}
			return err
		},
		what: fmt.Sprintf("of its %d KiB in use at the peak", limit>>10),
		effect: func(*stage) (int64, error) {
			n, err := g.Peak()
			if n < limit/2 {
				n = 0
			}
			return n >> 10, err
		}}
}

// logsFull makes the proxy log every request to a file system that is full for a while.
func logsFull() fault {
	f := fault{name: "disk full for logs", what: "bytes logged after it, no page meanwhile", how: "standard error is a file of a tmpfs of 256 KiB, filled up, with the access log on", settings: []string{"RETRYPROXY_ACCESS_LOG=true"}}
	var atBegin, atEnd int64
	inside := func(st *stage, file string) string {
		return filepath.Join(fmt.Sprintf("/proc/%d/root", st.proxy.PID()), st.dir, file)
	}
	size := func(st *stage) int64 {
		info, err := os.Stat(inside(st, "logs/log"))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	f.prepare = func(st *stage) error {
		logs := filepath.Join(st.dir, "logs")
		st.spec.By = rig.Mounting("mount -t tmpfs -o size=256k none "+logs, "2>>"+logs+"/log")
		if err := rig.CanMount(); err != nil {
			return err
		}
		return os.Mkdir(logs, 0o755)
	}
	f.begin = func(st *stage) error {
		err := os.WriteFile(inside(st, "logs/fill"), bytes.Repeat([]byte("x"), 256<<10), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("the file system does not become full: %v", err)
		}
		atBegin = size(st)
		return nil
	}
	f.end = func(st *stage) error {
		atEnd = size(st)
		err := os.Truncate(inside(st, "logs/fill"), 0)
		if os.IsNotExist(err) { // the proxy has ended, and its mounts with it
			return nil
		}
		return err
	}
	f.effect = func(st *stage) (int64, error) {
		if grown := atEnd - atBegin; grown > int64(os.Getpagesize()) { // the last page may have had room
			return 0, fmt.Errorf("the log grew by %d bytes while there was no room", grown)
		}
		if err := st.await("written to the log again", within, func() bool { return size(st) > atEnd }); err != nil {
			return 0, err
		}
		return size(st) - atEnd, nil
	}
	return f
}
