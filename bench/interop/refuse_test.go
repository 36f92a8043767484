package interop

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// refuser stands before an HTTP/2 server and refuses streams
// (REFUSED_STREAM). All else it passes on.
type refuser struct {
	addr    string
	to      string
	every   int64
	seen    atomic.Int64 // streams
	refused atomic.Int64
}

// refuse refuses each every-th stream to the server at to, until the test ends.
func refuse(t *testing.T, to string, every int64) *refuser {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &refuser{addr: l.Addr().String(), to: to, every: every}
	var all sync.WaitGroup
	var open sync.Map
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				open.Store(c, true)
				defer open.Delete(c)
				r.pass(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		all.Wait()
	})
	return r
}

func (r *refuser) pass(client net.Conn) {
	defer client.Close() //nolint:errcheck // it is over
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	defer server.Close() //nolint:errcheck // it is over
	toClient := &locked{w: client}
	settled := make(chan struct{}) // closed once the server's SETTINGS, which go first, were passed on
	back.Go(func() {
		settle := sync.OnceFunc(func() { close(settled) })
		defer settle()
		defer client.Close() //nolint:errcheck // it is over
		f := http2.NewFramer(toClient, server)
		f.SetMaxReadFrameSize(1 << 20)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if copyFrame(toClient, frame) != nil {
				return
			}
			settle()
		}
	})
	r.forward(client, server, toClient, settled)
}

// forward passes the client's frames on. Header blocks are written anew, as
// those of refused streams are missing from the compression's state.
func (r *refuser) forward(client, server net.Conn, toClient *locked, settled <-chan struct{}) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(client, preface); err != nil {
		return
	}
	if _, err := server.Write(preface); err != nil {
		return
	}
	in := http2.NewFramer(toClient, client)
	in.SetMaxReadFrameSize(1 << 20)
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	out := http2.NewFramer(server, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	gone := map[uint32]bool{}
	for {
		frame, err := in.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if !gone[id] && f.PseudoValue("method") != "" && r.seen.Add(1)%r.every == 0 {
				gone[id] = true
				r.refused.Add(1)
				<-settled
				err = toClient.frame(func(w *http2.Framer) error { return w.WriteRSTStream(id, http2.ErrCodeRefusedStream) })
				break
			}
			if gone[id] {
				break
			}
			block.Reset()
			for _, field := range f.Fields {
				_ = encoder.WriteField(field)
			}
			err = out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: f.StreamEnded(), EndHeaders: true})
		case *http2.DataFrame:
			if n := f.Length; gone[id] && n > 0 { // what it took of the connection's window is given back
				err = toClient.frame(func(w *http2.Framer) error { return w.WriteWindowUpdate(0, n) })
			} else if !gone[id] {
				err = out.WriteData(id, f.StreamEnded(), f.Data())
			}
		default:
			if !gone[id] {
				err = copyFrame(server, frame)
			}
		}
		if err != nil {
			return
		}
	}
}

// locked is written to by two goroutines, a frame at a time.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *locked) frame(write func(*http2.Framer) error) error { return write(http2.NewFramer(l, nil)) }

// copyFrame writes the frame just read as it is, in one write.
func copyFrame(w io.Writer, frame http2.Frame) error {
	h := frame.Header()
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	switch v := frame.(type) {
	case *http2.DataFrame:
		_ = f.WriteData(h.StreamID, v.StreamEnded(), v.Data())
	case *http2.HeadersFrame:
		_ = f.WriteRawFrame(h.Type, h.Flags&^(http2.FlagHeadersPadded|http2.FlagHeadersPriority), h.StreamID, v.HeaderBlockFragment())
	case *http2.ContinuationFrame:
		_ = f.WriteRawFrame(h.Type, h.Flags, h.StreamID, v.HeaderBlockFragment())
	case *http2.SettingsFrame:
		if v.IsAck() {
			_ = f.WriteSettingsAck()
			break
		}
		var all []http2.Setting
		_ = v.ForeachSetting(func(s http2.Setting) error { all = append(all, s); return nil })
		_ = f.WriteSettings(all...)
	case *http2.WindowUpdateFrame:
		_ = f.WriteWindowUpdate(h.StreamID, v.Increment)
	case *http2.RSTStreamFrame:
		_ = f.WriteRSTStream(h.StreamID, v.ErrCode)
	case *http2.PingFrame:
		_ = f.WritePing(v.IsAck(), v.Data)
	case *http2.GoAwayFrame:
		_ = f.WriteGoAway(v.LastStreamID, v.ErrCode, v.DebugData())
	}
	_, err := w.Write(b.Bytes())
	return err
}
