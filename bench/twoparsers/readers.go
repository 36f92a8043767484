package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/streams"
	"github.com/retryproxy/retryproxy/bench/internal/testbed"
)

// streamField names, to net/http's server behind another one, the port from which that one was asked.
const streamField = "X-Two-Parsers"

// reader is a server that reads requests: net/http's, or one that passes on to net/http's what it reads.
type reader struct {
	name, addr string

	mu   sync.Mutex                   // guards what follows
	read map[string][]streams.Reading // by the stream, a port, that it came from
}

// newReader starts net/http's server, at addr. Others before it say of which stream a request is.
func newReader(bed *testbed.Bed, name string) (r *reader, err error) {
	r = &reader{name: name, read: map[string][]streams.Reading{}}
	r.addr, err = bed.Serve(r)
	return r, err
}

func (by *reader) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	r, err := streams.ReadingOf(req)
	if err != nil {
		return // it was cut off, and nobody takes it for whole
	}
	_, stream, _ := net.SplitHostPort(req.RemoteAddr)
	if by.name != "net/http" {
		stream = req.Header.Get(streamField)
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	by.read[stream] = append(by.read[stream], r)
}

// take returns what was read of a stream, and forgets it.
func (by *reader) take(stream string) []streams.Reading {
	by.mu.Lock()
	defer by.mu.Unlock()
	got := by.read[stream]
	delete(by.read, stream)
	return got
}

// startReaders starts all of them; some are processes.
func startReaders(bed *testbed.Bed) (all []*reader, children []*process.Child, err error) {
	dir, err := bed.TempDir()
	if err != nil {
		return nil, nil, err
	}
	own, err := process.OwnAddresses(2)
	if err != nil {
		return nil, nil, err
	}
	for i, peer := range []struct {
		name, config string
		args         []string
	}{{"net/http", "", nil}, {"nginx", nginxConfig, []string{"-p", dir, "-e", "stderr", "-c"}}, {"haproxy", haproxyConfig, []string{"-db", "-f"}}} {
		r, err := newReader(bed, peer.name)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, r)
		if peer.config == "" {
			continue
		}
		path := dir + "/" + peer.name + ".cfg"
		origin := r.addr
		r.addr = own[i-1]
		if err := os.WriteFile(path, fmt.Appendf(nil, peer.config, r.addr, origin, dir, streamField), 0o600); err != nil {
			return nil, nil, err
		}
		cmd := exec.Command(peer.name, append(peer.args, path)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
		child, err := process.Start(cmd, nil)
		if err != nil {
			return nil, nil, err
		}
		bed.Later(child.End)
		if err := child.AwaitPort(r.addr); err != nil {
			return nil, nil, fmt.Errorf("%s: %w; it said:\n%s", peer.name, err, child.Lines())
		}
		children = append(children, child)
	}
	return all, children, nil
}

// ending follows the whole requests of a connection: who reads one's end
// elsewhere swallows it, or reads something before it.
const ending = "GET /ending HTTP/1.1\r\nHost: ending.example\r\nConnection: close\r\n\r\n"

// compare shows the bytes of a connection to all readers.
func (r *report) compare(readers []*reader, all []byte) {
	messages, rest, fault := streams.Split(all)
	r.mu.Lock()
	r.connections++
	r.requests += len(messages)
	if rest != nil && fault == nil {
		r.cut++
	}
	r.mu.Unlock()
	if fault != nil {
		r.Add("http.ReadRequest: %v\n  of %.3000q", fault, all)
	}
	for _, by := range readers {
		by.readAll(r, messages)
		if rest != nil && fault == nil {
			if got, _, err := by.show(rest, true); err != nil || len(got) > 0 {
				r.Add("%s reads %v in a request that is cut off (%v)\n  %.3000q", by.name, got, err, rest)
			}
		}
	}
}

// readAll shows messages to a reader, once more from behind each that it refuses
// for a reason of its own.
func (by *reader) readAll(r *report, messages []streams.Message) {
	for len(messages) > 0 {
		var raw []byte
		var want []streams.Reading
		for _, m := range messages {
			raw, want = append(raw, m.Raw...), append(want, m.Reading)
		}
		want = append(want, streams.Reading{Method: "GET", Target: "/ending", Host: "ending.example", Body: emptyBody})
		got, statuses, err := by.show(append(raw, ending...), false)
		n := 0
		for n < len(got) && n < len(want) && got[n] == want[n] {
			n++
		}
		if n == len(want) && n == len(got) {
			return
		}
		if n == len(got) && n < len(messages) && n < len(statuses) {
			if k := ruleFor(by.name, statuses[n], &messages[n]); k != nil {
				r.mu.Lock()
				r.known[k.name()]++
				r.mu.Unlock()
				messages = messages[n+1:]
				continue
			}
		}
		r.Add("%s reads otherwise (%v), and answers %v:\n  %v\n  instead of\n  %v\n  %.3000q", by.name, err, statuses, got, want, raw)
		return
	}
}

var emptyBody = func() string {
	req, _ := http.NewRequest("GET", "/", http.NoBody)
	r, _ := streams.ReadingOf(req)
	return r.Body
}()

// patience is for one connection to a reader.
const patience = 20 * time.Second

// show sends bytes to a reader and returns what it read, and the statuses of its
// answers. cut: the bytes end within a request, and so does the connection.
func (by *reader) show(raw []byte, cut bool) ([]streams.Reading, []int, error) {
	quiet := patience
	if cut {
		quiet = 20 * time.Millisecond
	}
	answers, port, err := testbed.Exchange(by.addr, raw, quiet)
	var methods []string
	asked, _, _ := streams.Split(raw)
	for _, m := range asked {
		methods = append(methods, m.Method)
	}
	return by.take(port), testbed.Statuses(answers, methods...), err
}

// Both pass everything on as they read it, and refuse as little as they can.
// %[1]s: their address, %[2]s: the origin's, %[3]s: a directory, %[4]s: streamField.
const nginxConfig = `
daemon off; master_process off; pid %[3]s/pid;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path %[3]s/b; proxy_temp_path %[3]s/p; fastcgi_temp_path %[3]s/f; uwsgi_temp_path %[3]s/u; scgi_temp_path %[3]s/s;
  merge_slashes off; large_client_header_buffers 8 256k; client_max_body_size 0; client_body_buffer_size 1m; keepalive_requests 100000; lingering_time 1s; lingering_timeout 200ms;
  server { listen %[1]s; location / {
    proxy_pass http://%[2]s; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_set_header %[4]s $remote_port; proxy_ignore_client_abort on;
  } }
}
`

const haproxyConfig = `
global
  tune.bufsize 262144
  tune.http.maxhdr 1000
defaults
  mode http
  timeout connect 3s
  timeout client 10s
  timeout server 10s
listen all
  bind %[1]s
  http-request set-header %[4]s %%[src_port]
  server one %[2]s
`
