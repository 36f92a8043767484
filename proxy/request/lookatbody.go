package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// FindRoute finds the route of the request. If a route or its rate limit depends on the body, it looks
// at that first.
func (cr *Request) FindRoute() {
	if len(cr.Settings.Routes) > 0 && cr.Settings.Table.HasModels() {
		cr.lookAtBody(tokens.WantModel)
		cr.Route = cr.Settings.Find(cr.Conn.Listener, cr.HTTP, withModel{cr})
	} else {
		cr.Route = cr.Settings.Find(cr.Conn.Listener, cr.HTTP, cr.HTTP)
	}
	cr.Dest = cr.Route
	if want := cr.Route.LookFor; want != 0 {
		cr.lookAtBody(want)
	}
}

// withModel finds the headers of a request, and the model in its body.
type withModel struct{ cr *Request }

// Lookup implements route.HeaderLookup.
func (m withModel) Lookup(name string) ([]byte, bool) {
	if name == route.ModelKey {
		model := m.cr.Tokens.Model()
		return model, model != nil
	}
	return m.cr.HTTP.Lookup(name)
}

// lookTime bounds the wait for the part of a body that is looked at. A body that comes more slowly
// does not say what is looked for.
const lookTime = BodyGrace

// lookAtBody reads the begin of the body into the client's buffer, as far as it takes to find what is
// wanted, and leaves it there. At most tokens.MaxLook bytes are read.
func (cr *Request) lookAtBody(want tokens.Want) {
	if cr.HTTP.Body.Empty() || cr.HTTP.Upgrade != nil || cr.GRPC {
		return
	}
	look := &cr.NeedTokens().look
	look.Reset(want)
	b := bodyLook{left: cr.HTTP.Body.Length, chunked: cr.HTTP.Body.Kind == http1.BodyChunked}
	c := cr.Conn
	b.read(look, c.In[c.R:c.W])
	for until := cr.Time.Began.Add(lookTime); !look.Done() && !b.ended && cr.readAhead(until); {
		b.read(look, c.In[c.R+b.taken:c.W])
	}
}

// readAhead reads once behind what the client's buffer has, without taking anything from it.
func (cr *Request) readAhead(until clock.Instant) bool {
	c := cr.Conn
	if cr.HTTP.ExpectContinue {
		cr.HTTP.ExpectContinue, cr.ExpectsContinue = false, true
		cr.ContinueClient()
	}
	cr.DetachHeaders(buffer.Large)
	for c.W < len(c.In) {
		c.SetRead(until, 0)
		err := c.Fill()
		if err == nil {
			cr.Time.Tick()
			return true
		}
		if !rawsocket.IsTimeout(err) || !cr.Time.Now().Before(until) {
			return false // whoever reads the body finds out
		}
		c.ReadAt = clock.LongAgo // somebody woke us
		time.Sleep(time.Millisecond)
	}
	return false
}

// bodyLook goes through a body in the client's buffer, free of its framing.
type bodyLook struct {
	chunked bool
	left    int64 // of a body with a length
	decoder http1.Chunked
	taken   int // bytes of the buffer
	ended   bool
}

// read passes what has come to look.
func (b *bodyLook) read(look *tokens.Request, p []byte) {
	if !b.chunked {
		n := int(min(int64(len(p)), b.left))
		look.Read(p[:n])
		b.taken += n
		b.left -= int64(n)
		b.ended = b.left == 0
		return
	}
	for len(p) > 0 && !b.ended {
		n, data, err := b.decoder.Next(p)
		look.Read(data)
		b.taken += n
		p = p[n:]
		b.ended = err != nil || b.decoder.Done()
	}
}
