package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// newcomers counts what clients with a connection of their own got.
type newcomers struct {
	signalled atomic.Bool
	early     atomic.Int64 // served, and connected before SIGTERM
	late      atomic.Int64 // served, and connected after it
	lateReset atomic.Int64
	mu        sync.Mutex // guards lost
	lost      []error    // of those that connected before SIGTERM
}

// post connects to network:address, calls connected, and sends a POST. It reports whether a
// response came.
func (n *newcomers) post(network, address string, secure bool, connected func()) bool {
	nc, err := net.Dial(network, address)
	early := !n.signalled.Load()
	connected()
	if err != nil {
		if early {
			n.lose(err)
		}
		return false // refused: it never connected
	}
	defer nc.Close() //nolint:errcheck // only a test
	_ = nc.SetDeadline(time.Now().Add(patience))
	if secure {
		nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	}
	err = exchange(nc)
	switch {
	case err == nil && early:
		n.early.Add(1)
	case err == nil:
		n.late.Add(1)
	case early:
		n.lose(fmt.Errorf("%s %s: %w", network, address, err))
	default:
		n.lateReset.Add(1)
	}
	return err == nil
}

func (n *newcomers) lose(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = append(n.lost, err)
}

// exchange sends a POST and reads its response.
func exchange(nc net.Conn) error {
	if _, err := io.WriteString(nc, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != "once" {
		err = errors.New(response.Status)
	}
	return err
}

// drainsWithClients are the listeners of a process that gets SIGTERM while clients connect.
func drainsWithClients(t *testing.T, secure bool) (p *child, networks, addresses []string) {
	t.Helper()
	admin, first, second := freePort(t), freePort(t), freePort(t)
	env := []string{"ADMIN_LISTEN=" + admin, "UPSTREAM=" + echo(t, 0), "LISTEN=" + first, "ROUTES=second", "ROUTE_SECOND_LISTEN=" + second}
	networks, addresses = []string{"tcp", "tcp"}, []string{first, second}
	if secure {
		cert, _ := selfSigned(t, t.TempDir(), 1)
		env = append(env, "TLS_CERT="+cert)
	} else {
		socket := filepath.Join(t.TempDir(), "s")
		env[3] += ",third"
		env = append(env, "ROUTE_THIRD_LISTEN=unix:"+socket)
		networks, addresses = append(networks, "unix"), append(addresses, socket)
	}
	p = spawn(t, nil, nil, env...)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if response, err := http.Get("http://" + admin + "/readyz"); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == 200 {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not ready:\n%s", p.log)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return p, networks, addresses
}

// A client whose connection was there before SIGTERM is served, also if the process had no time to
// accept it. `go test -run TestADrainResetsNobodyWhoHasConnected -count=100 -v` reports the others.
func TestADrainResetsNobodyWhoHasConnected(t *testing.T) {
	for kind, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(kind, func(t *testing.T) {
			p, networks, addresses := drainsWithClients(t, secure)
			var n newcomers
			var clients, connecting sync.WaitGroup
			crowd := func() {
				for i, network := range networks {
					for range 10 {
						connecting.Add(1)
						clients.Go(func() { n.post(network, addresses[i], secure, connecting.Done) })
					}
				}
			}
			for i, network := range networks { // they connect one after the other, until they are refused
				clients.Go(func() {
					for n.post(network, addresses[i], secure, func() {}) {
					}
				})
			}
			crowd()
			connecting.Wait()
			_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			crowd()
			connecting.Wait()
			n.signalled.Store(true)
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			if err := p.ends(); err != nil {
				t.Error(err)
			}
			clients.Wait()
			if len(n.lost) > 0 || strings.Contains(p.log.String(), "cut off") {
				t.Errorf("%d were lost, first: %v\n%s", len(n.lost), n.lost[0], p.log)
			}
			t.Logf("connected before SIGTERM: %d served; after it: %d served, %d reset", n.early.Load(), n.late.Load(), n.lateReset.Load())
		})
	}
}
