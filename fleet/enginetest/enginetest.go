// Package enginetest runs a real redis-server for tests, or a compatible program named by
// RETRYPROXY_TEST_ENGINE, such as a valkey-server. Without one the test is skipped, and fails in the gate: see
// package needs. A substitute would not prove that sharing works.
package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/internal/needs"
)

// Server is a redis-server that runs until its test ends. It is not safe for concurrent
// use.
type Server struct {
	URL string // for RETRYPROXY_SHARED

	t       testing.TB
	network string
	address string
	args    []string
	process *exec.Cmd
	out     bytes.Buffer
	ended   chan struct{}
	admin   *redis.Client
}

// Start runs a server on a private unix socket.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // short, as the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	return start(t, &Server{URL: "unix:" + socket, network: "unix", address: socket, args: slices.Concat(noPersistence, []string{"--port", "0", "--unixsocket", socket, "--dir", dir}, args)})
}

// StartTCP runs a server on a free port of loopback.
func StartTCP(t testing.TB, args ...string) *Server {
	t.Helper()
	port := FreePort(t)
	return start(t, &Server{
		URL: fmt.Sprintf("redis://127.0.0.1:%d", port), network: "tcp", address: fmt.Sprintf("127.0.0.1:%d", port),
		args: slices.Concat(noPersistence, []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", t.TempDir()}, args),
	})
}

// StartCluster runs masters, each with an equal part of all slots, that know each other. A
// master knows the others again after Kill and Restart.
func StartCluster(t testing.TB, masters int) []*Server {
	t.Helper()
	var all []*Server
	for i := range masters {
		bus := FreePort(t)
		s := StartTCP(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus), "--cluster-node-timeout", "2000")
		s.Do("CLUSTER", "ADDSLOTSRANGE", i*clusterSlots/masters, (i+1)*clusterSlots/masters-1)
		if i > 0 {
			host, port, err := net.SplitHostPort(s.address)
			if err != nil {
				t.Fatal(err)
			}
			all[0].Do("CLUSTER", "MEET", host, port, bus)
		}
		all = append(all, s)
	}
	AwaitCluster(t, all)
	return all
}

const clusterSlots = 16384

// AwaitCluster waits until each server knows all others and the location of every slot.
func AwaitCluster(t testing.TB, all []*Server) {
	t.Helper()
	whole := func(s *Server) bool {
		info := fmt.Sprint(s.Do("CLUSTER", "INFO"))
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(all))) &&
			strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", clusterSlots))
	}
	for until := time.Now().Add(30 * time.Second); !everyOne(all, whole); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("no cluster: %v", all[0].Do("CLUSTER", "NODES"))
		}
	}
}

func everyOne(all []*Server, is func(s *Server) bool) bool {
	return !slices.ContainsFunc(all, func(s *Server) bool { return !is(s) })
}

// ClusterURL returns the URL of a cluster, for RETRYPROXY_SHARED.
func ClusterURL(all []*Server) string {
	var addresses []string
	for _, s := range all {
		addresses = append(addresses, s.address)
	}
	return "redis+cluster://" + strings.Join(addresses, ",")
}

// MoveSlot moves a slot of the cluster, with its keys, to another of its servers.
func (s *Server) MoveSlot(slot int64, to *Server, all []*Server) {
	s.t.Helper()
	from, next := s.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from)
	s.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", next)
	host, port, err := net.SplitHostPort(to.address)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, key := range s.Do("CLUSTER", "GETKEYSINSLOT", slot, 100).([]any) {
		s.Do("MIGRATE", host, port, key, 0, 1000, "REPLACE")
	}
	for _, one := range append([]*Server{to, s}, all...) {
		one.Do("CLUSTER", "SETSLOT", slot, "NODE", next)
	}
}

// StartSentinel runs a sentinel on a free port of loopback. It monitors the server under
// the given name.
func (s *Server) StartSentinel(t testing.TB, name string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "sentinel.conf") // the sentinel writes to it
	if err := os.WriteFile(conf, fmt.Appendf(nil, "sentinel monitor %s %s %s 1\n", name, host, port), 0o600); err != nil {
		t.Fatal(err)
	}
	own := FreePort(t)
	return start(t, &Server{
		URL: fmt.Sprintf("redis+sentinel://127.0.0.1:%d/%s", own, name), network: "tcp", address: fmt.Sprintf("127.0.0.1:%d", own),
		args: []string{conf, "--sentinel", "--port", fmt.Sprint(own), "--bind", "127.0.0.1", "--dir", t.TempDir()},
	})
}

// noPersistence holds arguments that keep a server from storing anything on disk.
var noPersistence = []string{"--save", "", "--appendonly", "no", "--daemonize", "no"}

// FreePort returns a free port of loopback.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func start(t testing.TB, s *Server) *Server {
	t.Helper()
	if os.Getenv("RETRYPROXY_TEST_ENGINE") == "" {
		needs.Program(t, "redis-server", "redis-server")
	}
	s.t = t
	s.admin = redis.NewClient(&redis.Options{Network: s.network, Addr: s.address, MaxRetries: -1})
	t.Cleanup(func() {
		_ = s.admin.Close()
		s.Kill()
	})
	s.Restart()
	return s
}

// Restart runs the server again, without data, after Kill.
func (s *Server) Restart() {
	s.t.Helper()
	program := cmp.Or(os.Getenv("RETRYPROXY_TEST_ENGINE"), "redis-server")
	s.process = exec.Command(program, s.args...)
	s.process.Stdout, s.process.Stderr = &s.out, &s.out
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("%s (Debian: apt-get install redis-server): %v", program, err)
	}
	process, ended := s.process, make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		_ = process.Wait()
	}()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial(s.network, s.address)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ended:
			s.t.Fatalf("redis-server ended:\n%s", &s.out)
		default:
		}
		if time.Now().After(until) {
			s.t.Fatalf("redis-server does not listen: %v", err)
		}
	}
}

// Kill ends the server without a graceful shutdown.
func (s *Server) Kill() {
	_ = s.process.Process.Signal(syscall.SIGKILL)
	<-s.ended
}

// Pause stops the server until Continue: its sockets stay open but it does not respond.
func (s *Server) Pause() { _ = s.process.Process.Signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue() { _ = s.process.Process.Signal(syscall.SIGCONT) }

// Do runs a command as an administrator.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	reply, err := s.admin.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// Engine returns the server as parsed from settings.
func (s *Server) Engine() engine.Engine {
	s.t.Helper()
	e, err := engine.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}
