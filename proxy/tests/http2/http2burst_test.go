package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// lateSettings is a listener whose connections send their first bytes, the SETTINGS, late.
type lateSettings struct{ net.Listener }

func (l lateSettings) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lateConn{Conn: c}, nil
}

type lateConn struct {
	net.Conn
	once sync.Once
}

func (c *lateConn) Write(p []byte) (int, error) {
	c.once.Do(func() { time.Sleep(40 * time.Millisecond) }) // a round trip
	return c.Conn.Write(p)
}

// burst sends the POSTs of all clients at once, each client several times, and returns the statuses.
func burst(p *peers.Front, clients, times int) string {
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for range clients {
		all.Go(func() {
			c := p.Dial()
			for range times {
				res, _, err := c.Send(peers.Post("x")).Response("POST")
				mu.Lock()
				if err == nil {
					got[res.StatusCode]++
				} else {
					got[0]++
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return fmt.Sprint(got)
}

// littleRetries leaves a request one retry, and all requests together hardly a token.
func littleRetries(c *proxy.Config) {
	c.Default.Policy.MaxRetries = 1
	c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 1}
}

// tenStreams starts an upstream that allows ten streams, and says so a round trip after the connection is made.
func tenStreams(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("X-Retryproxy-Attempt"); n != "1" {
			t.Errorf("a stream beyond the limit was opened, and the request sent again: attempt %s", n)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Header().Set("Grpc-Status", "0")
		time.Sleep(20 * time.Millisecond)
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(lateSettings{l}) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return "h2c://" + l.Addr().String()
}

// Until the upstream has said how many streams it allows, its connection has one.
func TestABurstOnANewHTTP2ConnectionIsServed(t *testing.T) {
	p := proxytest.StartTo(t, tenStreams(t), littleRetries)
	if got := burst(p.Front, 100, 1); got != "map[200:100]" {
		t.Error(got)
	}
}

// The same for the gRPC calls of one client: none fails, and none waits for good.
func TestABurstOfGRPCCallsOnANewHTTP2ConnectionIsServed(t *testing.T) {
	p := proxytest.StartTo(t, tenStreams(t), func(c *proxy.Config) { littleRetries(c); peers.SpeakHTTP2(c) })
	client := peers.HTTP2Client(t, nil)
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			req, _ := http.NewRequest("POST", "http://"+p.Addr+"/s/M", strings.NewReader("\x00\x00\x00\x00\x01a"))
			req.Header.Set("Content-Type", "application/grpc")
			res, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			if _ = res.Body.Close(); res.Header.Get("Grpc-Status") != "0" {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
		})
	}
	all.Wait()
}

// An upstream that ends each connection after some requests (GOAWAY) processes none of the streams
// that were opened beyond. To send them again is free, and soon none are opened any more.
func TestAConnectionThatTakesFewRequestsCostsNoRetries(t *testing.T) {
	for _, limit := range []int{1, 3, 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			p := proxytest.StartTo(t, "h2c://"+peers.StartUpstream(t, endsAfter(limit)).Addr().String(), littleRetries)
			if got := burst(p.Front, 30, 10); got != "map[200:300]" {
				t.Error(got)
			}
		})
	}
}

// endsAfter serves HTTP/2 and processes as many requests on a connection as limit, as nginx does with
// keepalive_requests.
func endsAfter(limit int) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := c.Read(preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
			return
		}
		f := http2.NewFramer(c.Conn, c.Reader)
		_ = f.WriteSettings()
		var block strings.Builder
		headers := hpack.NewEncoder(&block)
		for taken := 0; ; {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				if taken++; taken == limit {
					_ = f.WriteGoAway(frame.StreamID, http2.ErrCodeNo, nil)
				}
				if taken > limit {
					continue
				}
				block.Reset()
				_ = headers.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true})
			}
		}
	}
}

// Each stream that a client may open gets its response while all are open.
func TestAllStreamsThatAreAdvertisedAreServed(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() != "" {
			c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			_, _ = io.Copy(io.Discard, c.Conn)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.MaxConcurrentStreams, c.MaxConnections, c.ClientMemory = 1000, 0, 64*peers.MiB
	})
	c, f := p.DialFramer()
	most, statuses := uint32(0), map[string]int{}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for served := 0; most == 0 || served < int(most); {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%v after %v", err, statuses)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if n, is := frame.Value(http2.SettingMaxConcurrentStreams); is {
				for most = n; served < int(most); served++ {
					peers.WriteHeaders(t, f, uint32(2*served+1), "GET", true)
				}
				served = 0
			}
		case *http2.MetaHeadersFrame:
			served++
			statuses[frame.PseudoValue("status")]++
		case *http2.RSTStreamFrame:
			t.Fatalf("stream %d was reset: %v", frame.StreamID, frame.ErrCode)
		}
	}
	if most < 10 || statuses["200"] != int(most) {
		t.Errorf("%d streams were advertised, responses: %v", most, statuses)
	}
}
