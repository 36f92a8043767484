package interop

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
)

// 10 000 frames of 0 to 1 MiB come back as they were sent, also when the first
// handshakes were answered with 503.
func TestWebSocketEcho(t *testing.T) {
	const frames = 10000
	var asked atomic.Int64
	upgrader := websocket.Upgrader{ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}
	p := startProxy(t, "http://"+newBed(t).Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= 2 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close() //nolint:errcheck // it is over
		for {
			kind, message, err := c.ReadMessage()
			if err != nil {
				return
			}
			if c.WriteMessage(kind, message) != nil {
				return
			}
		}
	})))
	c, res, err := websocket.DefaultDialer.Dial("ws://"+p.Addr+"/echo", nil)
	if err != nil {
		t.Fatal(err, res)
	}
	defer c.Close() //nolint:errcheck // it is over
	if n := asked.Load(); n != 3 {
		t.Errorf("%d handshakes at the upstream", n)
	}
	// Sizes are spread evenly over their logarithm, with both ends among them.
	r := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1 << 20}
	for len(sizes) < frames {
		sizes = append(sizes, int(math.Exp(r.Float64()*math.Log(1<<20))))
	}
	source := make([]byte, 2<<20)
	for i := range source {
		source[i] = byte(r.Uint32())
	}
	message := func(i int) []byte { return source[i : i+sizes[i]] }
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			if err := c.WriteMessage(websocket.BinaryMessage, message(i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range frames {
		_, got, err := c.ReadMessage()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if !bytes.Equal(got, message(i)) {
			t.Fatalf("frame %d of %d bytes came back as another", i, sizes[i])
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
